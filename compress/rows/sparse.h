// sparse.h - rows of codecs that send some elements and keep the others
#pragma once

#include "compress/kit/mix.h"
#include "compress/kit/select.h"
#include "compress/rows/common.h"
#include "compress/rows/kernels.h"
#include "compress/sparse_layout.h"

namespace gradlane {
namespace {

// Returns parameters for elements that were not scanned: all are sent but those that are 0, or become 0 on the lattice.
inline CodecParams sparse_params(const CodecArguments& arguments) {
  const int bits = arguments.value_bits;
  CodecParams params = lattice(arguments.value_bits, bits == 0 ? 0 : 1 - bits);
  const float least = bits == 0 ? 0 : params.step / 2;
  params.threshold = std::nextafter(least, 1.0F);
  return params;
}

// Returns whether the counts of pass `first` suffice. If not, it clears them, and the next pass must count all values.
inline bool counted(const CodecParams& params, TensorScan& scan, unsigned first) {
  if (scan.pass != first || cut_at(scan.counts, wanted_of(params, scan), scan.largest).bin >= scan.chosen) return true;
  scan.finite = scan.chosen = scan.marks = 0;
  scan.largest = 0;
  std::ranges::fill(scan.counts, 0);
  return false;
}

// Finds a threshold. It is never above the largest magnitude, so that something is sent even if all magnitudes are
// equal.
inline void find_threshold(CodecParams& params, TensorScan& scan, unsigned first) {
  if (scan.chosen == kKnown || !counted(params, scan, first)) return;
  const float found = threshold_at(scan.counts, wanted_of(params, scan), scan.largest);
  params.threshold = std::max(found, sparse_params(params.arguments).threshold);
  scan.chosen = kKnown;
  scan.next = kNothing;
}

inline void finish_scan_threshold(CodecParams& params, TensorScan& scan, float) { find_threshold(params, scan, 0); }

// Finds the bin of the cut. If only some of its elements are to be sent, [from, until) becomes a run of their numbers
// in the bin. This rank's seed decides where the run begins.
inline void find_run(CodecParams& params, TensorScan& scan) {
  if (scan.chosen == kKnown || !counted(params, scan, 0)) return;
  const uint64_t wanted = wanted_of(params, scan);
  const Cut cut = cut_at(scan.counts, wanted, scan.largest);
  const uint64_t some = wanted - std::min(wanted, cut.above);
  params.threshold = std::max(bin_from(cut.bin), sparse_params(params.arguments).threshold);
  params.from = params.until = 0;
  if (bin_from(cut.bin) == params.threshold && some < cut.inside) {
    params.from = mixed(params.own_seed) % (cut.inside - some + 1);
    params.until = params.from + some;
  }
  scan.chosen = kKnown;
  scan.next = kNothing;
}

// Runs after each pass. After the third pass, it replaces the element numbers `from` and `until` by positions in the
// tensor.
inline void finish_scan_exactly(CodecParams& params, TensorScan& scan, float) {
  if (scan.pass < 2) {
    find_run(params, scan);
    if (scan.pass == 0) return;
    std::ranges::fill(scan.counts, 0);
    scan.chosen = 0;
    scan.next = params.from == params.until ? kNothing : 0;
    if (scan.next == 0) go_to(params, scan, params.from, 0);
  } else if (params.from != params.until) {
    params.from = place_at(scan, kRunFrom);
    params.until = place_at(scan, kRunUntil);
  }
}

// Factors by which dgc's options are stored: clip, the largest norm of one rank's gradient, and m, the momentum.
constexpr uint16_t kClipPerOne = 10;
constexpr uint16_t kMomentumPerOne = 1000;

inline CodecParams dgc_params(const CodecArguments& arguments) {
  CodecParams params = sparse_params(arguments);
  params.scale = static_cast<float>(arguments.extra) / kMomentumPerOne;
  return params;
}

inline void finish_scan_clipped(CodecParams& params, TensorScan& scan, float) {
  if (scan.pass != 0) return find_threshold(params, scan, 1);
  const double norm = std::sqrt(scan.square), most = static_cast<double>(params.arguments.bits) / kClipPerOne;
  params.gain = params.arguments.bits != 0 && norm > most ? static_cast<float>(most / norm) : 1.0F;
}

// Sets what these rows have in common.
constexpr CodecRow sparse_row(CodecRow row) {
  row.has_rate = true;
  row.takes_lattice = true;
  row.granule = kRecordFloats;
  row.max_bytes = sparse_max_bytes;
  row.least_bytes = sparse_least_bytes;
  row.error = unbounded;  // elements that are not sent may be of any size
  row.layout = Form::kSparse;
  row.feedback = true;
  return row;
}

constexpr CodecRow kSparseRows[] = {
    sparse_row({.id = CodecId::kTopK,
                .word = "topk",
                .usage = "topk:RATE[+fixed:B]",
                .example = "topk:1%",
                .promise = "the largest elements, about RATE of all",
                .kernels = GRADLANE_KERNELS(kTopK),
                .params = sparse_params,
                .passes = 2,
                .finish_scan = finish_scan_threshold,
                .source = "Stich et al., NeurIPS 2018"}),
    sparse_row({.id = CodecId::kMsTopK,
                .word = "mstopk",
                .usage = "mstopk:RATE[+fixed:B]",
                .example = "mstopk:1%",
                .promise = "the largest elements, exactly RATE of all",
                .kernels = GRADLANE_KERNELS(kMsTopK),
                .params = sparse_params,
                .passes = 3,
                .finish_scan = finish_scan_exactly,
                .source = "Agarwal et al., MLSys 2022"}),
    sparse_row({.id = CodecId::kDgc,
                .word = "dgc",
                .usage = "dgc:RATE[,m=M][,clip=C][+fixed:B]",
                .example = "dgc:0.1%",
                .promise = "the largest accumulated velocities, RATE of all",
                .kernels = GRADLANE_KERNELS(kDgc),
                .params = dgc_params,
                .extra = {.place = "m", .least = 0, .most = 999, .usual = 900, .per_one = kMomentumPerOne},
                .second_extra = {.place = "clip", .least = 0, .most = 255, .usual = 0, .per_one = kClipPerOne},
                .passes = 3,
                .finish_scan = finish_scan_clipped,
                .states = 2,
                .source = "Lin et al., ICLR 2018"}),
    sparse_row({.id = CodecId::kGradDrop,
                .word = "graddrop",
                .usage = "graddrop:RATE[+fixed:B]",
                .example = "graddrop:0.1%",
                .promise = "the largest elements, about RATE of all",
                .kernels = GRADLANE_KERNELS(kTopK),
                .params = sparse_params,
                .passes = 2,
                .finish_scan = finish_scan_threshold,
                .source = "Aji and Heafield, EMNLP 2017"}),
};

}  // namespace
}  // namespace gradlane
