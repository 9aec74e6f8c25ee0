// RUN: easyquant-opt %s --split-input-file --verify-diagnostics

// What is started is waited for once, on the same memory, and nothing else is.

func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' starts number 0; expected one launch.wait for it on this memory, behind it}}
  launch.collective 0 all_reduce sum(%x) {site = "a"} : memref<?x16xf32>
  return
}

// -----

func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' waits for number 0; expected one launch.collective that starts it on this memory, before it}}
  launch.wait 0(%x) {site = "a"} : memref<?x16xf32>
  launch.collective 0 all_reduce sum(%x) {site = "a"} : memref<?x16xf32>
  return
}

// -----

func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' starts number 0; expected one launch.wait for it on this memory, behind it}}
  launch.collective 0 all_reduce sum(%x) {site = "a"} : memref<?x16xf32>
  launch.wait 1(%x) {site = "a"} : memref<?x16xf32>
  return
}

// -----

func.func @forward(%x: memref<?x16xf32>, %y: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' starts number 0; expected one launch.wait for it on this memory, behind it}}
  launch.collective 0 all_reduce sum(%x) {site = "a"} : memref<?x16xf32>
  launch.wait 0(%y) {site = "a"} : memref<?x16xf32>
  return
}

// -----

func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' starts number 0; expected one launch.wait for it on this memory, behind it}}
  launch.collective 0 all_reduce sum(%x) {site = "a"} : memref<?x16xf32>
  launch.wait 0(%x) {site = "a"} : memref<?x16xf32>
  launch.wait 0(%x) {site = "a"} : memref<?x16xf32>
  return
}

// -----

func.func @forward(%x: memref<?x16xf32>) {
  // expected-error @below {{of site 'a' expected an all_reduce by sum, max or min, or an all_gather of columns, found all_reduce of 'memref<?x16xf32>'}}
  launch.collective 0 all_reduce(%x) {site = "a"} : memref<?x16xf32>
  launch.wait 0(%x) {site = "a"} : memref<?x16xf32>
  return
}

// -----

func.func @forward(%x: memref<?x16xf16>) {
  // expected-error @below {{of site 'a' expected rows of f32 or i32, found 'memref<?x16xf16>'}}
  launch.collective 0 all_gather(%x) {site = "a"} : memref<?x16xf16>
  launch.wait 0(%x) {site = "a"} : memref<?x16xf16>
  return
}
