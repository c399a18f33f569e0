"""Tests of gradlane. The modules in Python import each other from the root of the tree."""
