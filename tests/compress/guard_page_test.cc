// guard_page_test.cc - kernels access nothing outside the spans they are given: each span lies flush against memory
// that faults
//
// A fault kills the test. Inputs are mapped read-only, so the test also finds a kernel that writes to them.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_calls.h"
#include "tests/thorough.h"

namespace gradlane::test::guard_page_test {
namespace {

enum class Flush : uint8_t { kBegin, kEnd };

// Memory that is mapped twice: one view is writable, the other is read-only. Each view has a faulting page on both
// sides.
class GuardedPages {
 public:
  GuardedPages() {
    const int file = memfd_create("guarded", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(kBytes)) != 0) std::abort();
    writable_ = map(file, PROT_READ | PROT_WRITE);
    readable_ = map(file, PROT_READ);
    close(file);
  }
  ~GuardedPages() {
    munmap(writable_ - kPage, kBytes + 2 * kPage);
    munmap(readable_ - kPage, kBytes + 2 * kPage);
  }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  uint8_t* writable(size_t bytes, Flush flush) { return writable_ + offset(bytes, flush); }
  const uint8_t* readable(size_t bytes, Flush flush) const { return readable_ + offset(bytes, flush); }

 private:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kBytes = 4 * kPage;

  static uint8_t* map(int file, int protection) {
    void* const whole = mmap(nullptr, kBytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) std::abort();
    uint8_t* const at = static_cast<uint8_t*>(whole) + kPage;
    if (mmap(at, kBytes, protection, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) std::abort();
    return at;
  }

  static size_t offset(size_t bytes, Flush flush) {
    if (bytes > kBytes) std::abort();
    return flush == Flush::kBegin ? 0 : kBytes - bytes;
  }

  uint8_t* writable_;
  uint8_t* readable_;
};

class GuardedMemory : public Memory {
 public:
  explicit GuardedMemory(Flush flush) : flush_(flush) {}

  const uint8_t* input(Slot slot, std::span<const uint8_t> data) override {
    std::copy_n(data.data(), data.size(), output(slot, data.size()));
    return slots_[slot].readable(data.size(), flush_);
  }
  uint8_t* output(Slot slot, size_t bytes) override { return slots_[slot].writable(bytes, flush_); }

 private:
  Flush flush_;
  std::array<GuardedPages, kSlots> slots_;
};

class GuardPage : public IsaTest {
 protected:
  // Runs every op on runs of every length, with all kinds of floats and blocks, and with outputs of any length.
  static void run_all(Flush flush) {
    GuardedMemory guarded(flush);
    Rng rng(1);
    std::vector<size_t> lengths = {352, 2048};
    for (size_t floats = 0; floats <= 200; floats += thorough() ? 1 : 7) lengths.push_back(floats);
    for (const std::string& name : and_halves(some_codecs())) {
      const Codec mine = find_named(name, GetParam());
      const FloatSource source(mine);
      for (const size_t floats : lengths) {
        CallData data = make_data(rng, mine, source, floats);
        for (const BlockKind kind : kBlockKinds) {
          data.block = make_block(rng, mine, source, kind, floats);
          for (const Call& call : make_calls(rng, mine, data)) {
            HeapMemory heap;
            const Outcome want = run(mine, call, heap);
            const Outcome got = run(mine, call, guarded);
            ASSERT_TRUE(got == want) << describe(mine, call) << ": " << difference(want, got);
          }
        }
      }
    }
  }
};

TEST_P(GuardPage, BehindTheEnd) { run_all(Flush::kEnd); }
TEST_P(GuardPage, BeforeTheBegin) { run_all(Flush::kBegin); }

// Outputs of every length, from 0 to more than enough, cut every group at every place.
TEST_P(GuardPage, EveryRoom) {
  GuardedMemory guarded(Flush::kEnd);
  Rng rng(2);
  for (const std::string& name : and_halves(some_codecs())) {
    const Codec mine = find_named(name, GetParam());
    const FloatSource source(mine);
    for (const Kind kind : kKinds) {
      CallData data;
      data.floats = source.make(rng, kind, 100);
      data.residual = source.make(rng, Kind::kResidual, std::max(1U, mine.states()) * 100);
      data.block = make_block(rng, mine, source, BlockKind::kForeign, 100);
      for (const Op op : {Op::kEncode, Op::kEncodeFeedback, Op::kHop, Op::kHopFeedback}) {
        if (!mine.has_feedback() && (op == Op::kEncodeFeedback || op == Op::kHopFeedback)) continue;
        const size_t max = mine.max_bytes(100);
        for (size_t room = 0; room <= max + 64; room += thorough() ? 1 : 5) {
          const Outcome got = run(mine, {op, data.block, data.floats, data.residual, room, 0}, guarded);
          ASSERT_LE(got.bytes.size(), room);
          if (room >= max) {
            ASSERT_EQ(got.floats, 100U);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, GuardPage, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::guard_page_test
