"""Commands around gradlane, and what they are made of; those in Python import each other from the root of the tree."""
