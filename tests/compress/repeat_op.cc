// repeat_op.cc - repeats one operation of a codec, for dev/count_steps.py and dev/instructions.py
//
// usage: repeat_op ISA CODEC OPERATION FLOATS TIMES
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/compress/test_calls.h"

namespace gradlane::test {
namespace {

// Returns floats like gradients: about Gaussian, with standard deviation 0.01.
std::vector<float> small_floats(size_t count, uint32_t seed) {
  std::vector<float> floats(count);
  for (float& f : floats) {
    int32_t sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<int32_t>((seed = seed * 1664525 + 1013904223) >> 16) - 0x8000;
    f = 0.01F * static_cast<float>(sum) / 65536.0F;
  }
  return floats;
}

Isa isa_of(const std::string& name) {
  for (const Isa isa : kIsas) {
    if (name == isa_name(isa)) return isa;
  }
  throw SetupError(name + ": this build has no such instruction set");
}

int repeat(const std::string& isa, const std::string& name, const std::string& op, size_t floats, size_t times) {
  const std::vector<float> local = small_floats(floats, 1);
  std::vector<float> residual = small_floats(floats, 3), second(floats);
  const Codec codec = ready_for(find_codec(name, isa_of(isa)), local, residual.data(), second.data());
  std::vector<uint8_t> block(codec.max_bytes(floats)), out(codec.max_bytes(floats));
  block.resize(codec.encode(small_floats(floats, 2), block).bytes);
  std::vector<float> sums = local;
  size_t done = 0;
  for (size_t i = 0; i < times; ++i) {
    if (op == "encode") {
      done += codec.encode(local, out).floats;
    } else if (op == "encode_feedback") {
      done += codec.encode_feedback(local, residual.data(), out).floats;
    } else if (op == "decode") {
      done += codec.decode(block, sums) == Status::kOk ? floats : 0;
    } else if (op == "decode_add") {
      done += codec.decode_add(block, sums) == Status::kOk ? floats : 0;
    } else if (op == "hop") {
      done += codec.hop(block, local, out, 0).floats;
    } else {
      throw SetupError(op + ": no operation; encode, encode_feedback, decode, decode_add, hop are");
    }
  }
  if (done == times * floats) return EXIT_SUCCESS;
  std::fprintf(stderr, "repeat_op: %s of %s has stopped at %zu floats\n", op.c_str(), name.c_str(), done);
  return EXIT_FAILURE;
}

}  // namespace
}  // namespace gradlane::test

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: repeat_op ISA CODEC OPERATION FLOATS TIMES\n");
    return 2;
  }
  try {
    return gradlane::test::repeat(argv[1], argv[2], argv[3], std::strtoul(argv[4], nullptr, 10),
                                  std::strtoul(argv[5], nullptr, 10));
  } catch (const gradlane::SetupError& error) {
    std::fprintf(stderr, "repeat_op: %s\n", error.what());
    return 2;
  }
}
