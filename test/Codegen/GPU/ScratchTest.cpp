#include "AttentionSession.h"
#include <fstream>
using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;
TEST(Scratch, Ptx) {
  KernelLibrary library(ChipId::SM90a);
  for (int bits : {0, 8}) {
    AttentionSpec s = specOf(32, 8, 512);
    if (bits) { s.kv = KVScheme{bits, 64, 128, 4, KeySlices::Channel}; }
    library.add(s);
    s.bound = 50; s.sinkLogits = true;
    library.add(s);
  }
  std::ofstream("/tmp/scratch.ptx") << library.ptx();
}
