// A method that finds nothing to do says what it looked for, and leaves the module as it is.
// RUN: rm -rf %t && mkdir %t && echo '{"scheme": "W4A16"}' > %t/recipe.json
// RUN: easyquant-opt %s --equant-absmax 2>&1 | FileCheck %s --check-prefixes=WARNING,PLAN -DPASS=equant-absmax
// RUN: easyquant-opt %s --equant-zeropoint 2>&1 | FileCheck %s --check-prefixes=WARNING,PLAN -DPASS=equant-zeropoint
// RUN: easyquant-opt %s --equant-symmetric 2>&1 | FileCheck %s --check-prefixes=WARNING,PLAN -DPASS=equant-symmetric
// RUN: easyquant-opt %s --equant-zeroquant 2>&1 | FileCheck %s --check-prefixes=WARNING,PLAN -DPASS=equant-zeroquant
// RUN: easyquant-opt %s --equant-recipe=file=%t/recipe.json 2>&1 | FileCheck %s --check-prefixes=WARNING,PLAN -DPASS=equant-recipe
// RUN: easyquant-opt %s --equant-smooth-quant 2>&1 | FileCheck %s --check-prefixes=WARNING,METHOD -DPASS=equant-smooth-quant -DMETHOD=smoothquant
// RUN: easyquant-opt %s --equant-awq 2>&1 | FileCheck %s --check-prefixes=WARNING,METHOD -DPASS=equant-awq -DMETHOD=awq
// RUN: easyquant-opt %s --equant-gptq 2>&1 | FileCheck %s --check-prefixes=WARNING,METHOD -DPASS=equant-gptq -DMETHOD=gptq
// RUN: easyquant-opt %s --equant-lkd 2>&1 | FileCheck %s --check-prefixes=WARNING,METHOD -DPASS=equant-lkd -DMETHOD=lkd

// WARNING: warning: [[PASS]]: nothing to do: expected
// PLAN-SAME: a quantizable op; found 0 quantizable ops (lm.linear, and linalg ops that equant-name-sites has named), 0 of them with a plan
// METHOD-SAME: a site whose equant.plan names '[[METHOD]]' (a plan pass before this one, with methods=[[METHOD]]); found 0 quantizable ops
// WARNING-NOT: equant.recipe
// WARNING: lm.gelu

// With require-sites that is an error.
// RUN: not easyquant-opt %s --equant-absmax=require-sites 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not easyquant-opt %s --equant-zeropoint=require-sites 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not easyquant-opt %s --equant-symmetric=require-sites 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not easyquant-opt %s --equant-zeroquant=require-sites 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not easyquant-opt %s "--equant-recipe=file=%t/recipe.json require-sites" 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not easyquant-opt %s --equant-smooth-quant=require-sites 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not easyquant-opt %s --equant-awq=require-sites 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not easyquant-opt %s --equant-gptq=require-sites 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not easyquant-opt %s --equant-lkd=require-sites 2>&1 | FileCheck %s --check-prefix=ERROR
// ERROR: error: {{.*}}: nothing to do: expected

// Sites that are there but left out count as well.
// RUN: easyquant-opt %S/absmax.mlir "--equant-absmax=ignore=re:.*" 2>&1 | FileCheck %s --check-prefix=IGNORED
// IGNORED: warning: equant-absmax: nothing to do: expected a quantizable op that is a target, is not ignored and stays no float; found {{[1-9][0-9]*}} quantizable ops
// RUN: easyquant-opt %S/absmax.mlir --equant-absmax=scheme=none 2>&1 | FileCheck %s --check-prefix=FLOAT
// FLOAT-NOT: warning

func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = lm.gelu %x approximate none : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
