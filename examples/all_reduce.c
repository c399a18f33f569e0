// all_reduce.c - sums a million floats of each rank, and checks the result
//
// Build:          cc all_reduce.c $(pkg-config --cflags --libs gradlane) -o all_reduce
// One machine:    gradlane run -n 4 -- ./all_reduce
// Four machines:  gradlaned --nodes HOST0,HOST1,HOST2,HOST3
//                 ./all_reduce
//                 (both on each machine, in two terminals; HOST0 to HOST3 are their names or addresses)
#include <gradlane.h>
#include <math.h>
#include <stdio.h>

enum { kCount = 1000000 };

static int failed(const gradlane_context* gl, const char* what) {
  fprintf(stderr, "%s: %s\n", what, gradlane_error(gl));
  return 1;
}

int main(void) {
  gradlane_context* gl = NULL;
  if (gradlane_open(&gl, NULL) != GRADLANE_OK) return failed(NULL, "open");
  const int rank = gradlane_rank(gl);
  const int world = gradlane_world(gl);
  void* data = NULL;
  if (gradlane_alloc(gl, kCount * sizeof(float), &data) != GRADLANE_OK) return failed(gl, "alloc");

  float* const values = data;
  for (int i = 0; i < kCount; ++i) values[i] = 0.01f * (float)((i + rank) % 7);
  if (gradlane_all_reduce(gl, data, kCount, GRADLANE_FLOAT32, NULL, NULL) != GRADLANE_OK) return failed(gl, "reduce");

  int wrong = 0;
  for (int i = 0; i < kCount; ++i) {
    double expected = 0;
    for (int r = 0; r < world; ++r) expected += 0.01 * ((i + r) % 7);
    wrong += !(fabs((double)values[i] - expected) <= world * 0x1p-7);  // the bound of fixed:7 and of all finer codecs
  }
  printf("rank %d of %d: codec %s, sum %g, wrong %d\n", rank, world, gradlane_codec(gl), (double)values[1], wrong);
  gradlane_close(gl);
  return wrong == 0 ? 0 : 1;
}
