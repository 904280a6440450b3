// libFuzzer's entry (TIERD_FUZZ); decoder_fuzz_test.cc runs the same function without it.
#include "tests/ssd/decoder_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)tierd::ssd::RunDecoders({data, size});
  return 0;
}
