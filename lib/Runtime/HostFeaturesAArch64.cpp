//===- HostFeaturesAArch64.cpp - What a 64-bit Arm CPU has ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Program.h"

#include <asm/hwcap.h>
#include <sys/auxv.h>

using namespace easyquant::runtime;

CpuFeatures CpuFeatures::host() {
  // What Linux reports is what all cores have.
  const unsigned long present = ::getauxval(AT_HWCAP);
  CpuFeatures features;
  if (present & HWCAP_ATOMICS)
    features.present.insert("LSE");
  if (present & HWCAP_ASIMDDP)
    features.present.insert("DotProd");
  if (::getauxval(AT_HWCAP2) & HWCAP2_I8MM)
    features.present.insert("I8MM");
  return features;
}
