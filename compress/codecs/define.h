// define.h - definitions of the tables in tables.h; included once by kit.cc of each instruction set
#pragma once

#include "compress/codecs/dgc.h"
#include "compress/codecs/fp8.h"
#include "compress/codecs/int8.h"
#include "compress/codecs/mstopk.h"
#include "compress/codecs/onebit.h"
#include "compress/codecs/qsgd.h"
#include "compress/codecs/tables.h"
#include "compress/codecs/topk.h"
#include "compress/codecs/votes.h"

#define GRADLANE_DEFINE(name, passes) constexpr CodecOps name = passes::ops();
