// RUN: xdsl-opt %s -p 'diagram-set-sizes{sizes="n=64"}' | filecheck %s
// RUN: xdsl-opt %s -p diagram-set-sizes | filecheck %s --check-prefix=NONE
// RUN: not treadle-opt %s -p 'diagram-set-sizes{sizes="d=64"}' 2>&1 | filecheck %s --check-prefix=STATIC
// RUN: not treadle-opt %s -p 'diagram-set-sizes{sizes="nn=64"}' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not treadle-opt %s -p 'diagram-set-sizes{sizes="n"}' 2>&1 | filecheck %s --check-prefix=SYNTAX

!x = tensor<?x?x32xf32, #diagram.array<[m, n, d]>>
!y = memref<?xf32, #diagram.array<[n], level = device>>

// In the signature, in every value and in regions; memrefs too. The default goes, the derivation grows.

// CHECK-LABEL: func.func @negate(
// CHECK-SAME: %x: tensor<?x64x32xf32, #diagram.array<[m, n, d]>>, %y: memref<64xf32, #diagram.array<[n], level = device>>) -> tensor<?x64x32xf32, #diagram.array<[m, n, d]>>
// CHECK-SAME: derivation = [#hierarchy.step<"diagram-set-sizes", "n", "instance of a symbolic program", "n = 64">]
// CHECK-SAME: sizes = #diagram.sizes<m = 4>
// CHECK-NEXT: %z = diagram.map (%a = %x : tensor<?x64x32xf32, #diagram.array<[m, n, d]>>) -> tensor<?x64x32xf32, #diagram.array<[m, n, d]>> {
// CHECK-NEXT:   %b = arith.negf %a : f32
// CHECK-NEXT:   diagram.yield %b : f32
// CHECK-NEXT: }
// CHECK-NEXT: func.return %z : tensor<?x64x32xf32, #diagram.array<[m, n, d]>>

// NONE-LABEL: func.func @negate(
// NONE-SAME: %x: tensor<?x?x32xf32, #diagram.array<[m, n, d]>>, %y: memref<?xf32, #diagram.array<[n], level = device>>) -> tensor<?x?x32xf32, #diagram.array<[m, n, d]>>
// NONE-SAME: attributes {sizes = #diagram.sizes<m = 4, n = 8>} {

// STATIC: 'func.func' @negate: axis 'd' has size 32 in the program and cannot be 64: write '?' for it in the types
// UNKNOWN: 'func.func' @negate: there is no axis 'nn' (the axes are m = ?, n = ?, d = 32); did you mean 'n'?
// SYNTAX: --size n: write it as axis=number, for example --size q=200
func.func @negate(%x: !x, %y: !y) -> !x attributes {sizes = #diagram.sizes<m = 4, n = 8>} {
  %z = diagram.map (%a = %x : !x) -> !x {
    %b = arith.negf %a : f32
    diagram.yield %b : f32
  }
  func.return %z : !x
}

// A law has axes of its own.

// CHECK-LABEL: diagram.law @share over [n] (%v: tensor<?xf32, #diagram.array<[n]>>) -> tensor<?xf32, #diagram.array<[n]>>
diagram.law @share over [n] (%v: tensor<?xf32, #diagram.array<[n]>>) -> tensor<?xf32, #diagram.array<[n]>> {
  diagram.yield %v : tensor<?xf32, #diagram.array<[n]>>
}
