"""Tests of all of gradlane; those in Python import each other from the root of the tree."""
