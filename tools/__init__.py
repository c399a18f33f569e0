"""Commands around gradlane, and their parts. The Python modules import each other from the root of the tree."""
