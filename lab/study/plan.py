"""plan.py - models and settings of the trainings (needs no PyTorch)"""

import datetime

PATIENCE = datetime.timedelta(seconds=60)  # time limit of a trainer's collectives
NODES, EPOCHS = 4, 15
MODELS = {
    "digits": "64-500-500-500-500-10, 789,010 parameters",
    "conv": "convolutional, 283,786 parameters",
    "gpt": "GPT of 2 blocks, 1,645,664 parameters",
    "gpt5m": "GPT of 2 wider blocks, 5,298,976 parameters",
}
# Settings of the GPTs: characters of a window, windows per node and step, first rate of AdamW; width, and steps of an
# "epoch".
GPT_CONTEXT, GPT_BATCH, GPT_RATE = 64, 1, 1e-3
GPT_WIDTHS, GPT_STEPS = {"gpt": 256, "gpt5m": 464}, {"gpt": 40, "gpt5m": 20}
SMALL = 1024  # elements of a parameter; smaller ones are not compressed
BATCH, RATE, MOMENTUM = 32, 0.05, 0.9  # of the digits: images per node and step, first rate, momentum of SGD
