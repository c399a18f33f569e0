"""Steps of trainings: predicted by `gradlane plan`, then measured, with gradlane's codecs and with rivals."""
