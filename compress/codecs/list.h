// list.h - list of the codecs that are made with the kit: X(table of its functions, class that has them)
//
// Each instruction set has these tables in its namespace: its kit.cc defines them, and rows/kernels.h refers to them.
#pragma once

#define GRADLANE_KIT_CODECS(X)                    \
  X(kTopK, SparsePasses<TopK>)                    \
  X(kMsTopK, SparsePasses<MsTopK>)                \
  X(kDgc, SparsePasses<Dgc>)                      \
  X(kOneBit, ChunkPasses<OneBit>)                 \
  X(kQsgd, ChunkPasses<Qsgd>)                     \
  X(kInt8, ChunkPasses<Int8>)                     \
  X(kFp8, ChunkPasses<Fp8>)                       \
  X(kSignSgd, VotePasses<Majority>)               \
  X(kSignSgdTernary, VotePasses<TernaryMajority>) \
  X(kSignSgdFeedback, VotePasses<ScaledSigns>)
