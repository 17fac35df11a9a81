// RUN: xdsl-opt %s -p hierarchy-choose-sizes | filecheck %s
// RUN: xdsl-opt %s -p 'hierarchy-choose-sizes{group="m=32,n=128" stream="k=16"}' | filecheck %s --check-prefix GIVEN
// RUN: xdsl-opt %s -p 'hierarchy-choose-sizes{group="m=64,n=128" warps="m=1,n=4" left=shared turns=0 kernel=product}' | filecheck %s --check-prefix STATED
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-choose-sizes{group="m=64" warps="m=3"}' | filecheck %s --check-prefix WARPS
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-choose-sizes{turns=2}' | filecheck %s --check-prefix TURNS
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-choose-sizes{group="m=24"}' | filecheck %s --check-prefix WRONG
// RUN: xdsl-opt %s --verify-diagnostics -p 'hierarchy-choose-sizes{stream="m=32"}' | filecheck %s --check-prefix UNKNOWN

!A = tensor<?x?xf16, #diagram.array<[m, k]>>
!B = tensor<?x?xf16, #diagram.array<[k, n]>>
!Ad = tensor<?x?xf16, #diagram.array<[m, k], level = device>>
!Bd = tensor<?x?xf16, #diagram.array<[k, n], level = device>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>
!Cr = tensor<?x?xf32, #diagram.array<[m, n], level = register>>

// CHECK-LABEL: func.func @product(
// CHECK-SAME:  derivation = [#hierarchy.step<"choose sizes", "@product", "cost model", "m = [[M:\d+]], n = [[N:\d+]], k = [[K:\d+]] in 4 warps: estimated
// CHECK-SAME:  registers a thread
// CHECK:       %C = hierarchy.kernel @product
// CHECK-SAME:  schedule #hierarchy.schedule<group = [m = [[M]], n = [[N]]], stream = [k = [[K]]], warps = [m = 2, n = 2]>

// GIVEN: schedule #hierarchy.schedule<group = [m = 32, n = 128], stream = [k = 16], warps = [m =

// STATED: schedule #hierarchy.schedule<group = [m = 64, n = 128], stream = [k = {{[0-9]+}}], warps = [m = 1, n = 4], left = shared, turns = 0>

// WARPS: warps of @product cannot lie as m = 3 with these pieces: there may be m = 1, 2, 4; n = 1, 2, {{.*}}; or leave them to the cost model

// TURNS: no 2 blocks of @product can share a processor of a100: only 3 may; ask for turns=1, or leave that to the cost model

// WRONG: axis 'm' cannot have pieces of 24 in @product: rows of products lie 16, 32 or 64 to a warp

// UNKNOWN: option 'stream' names axis 'm', which no kernel treats so (axes: 'k')

func.func @product(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<m = 4096, n = 4096, k = 4096>} {
  %C = hierarchy.kernel @product (%a = %A : !A as !Ad, %b = %B : !B as !Bd) -> (!C)
      schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?]> {
    %c = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !Cr
    hierarchy.yield %c : !Cr
  }
  func.return %C : !C
}

// Columns lie along n, which is reduced and so no group's to cut: groups take one index of o.
!W = tensor<?x64x64xf16, #diagram.array<[o, k, n]>>
!Wd = tensor<?x64x64xf16, #diagram.array<[o, k, n], level = device>>
!A64 = tensor<?x64xf16, #diagram.array<[m, k]>>
!A64d = tensor<?x64xf16, #diagram.array<[m, k], level = device>>
!Rr = tensor<?x?x64xf32, #diagram.array<[m, o, n], level = register>>
!M = tensor<?x?xf32, #diagram.array<[m, o]>>
!Mr = tensor<?x?xf32, #diagram.array<[m, o], level = register>>

// CHECK-LABEL: func.func @columns(
// CHECK:       %M = hierarchy.kernel @columns
// CHECK-SAME:  schedule #hierarchy.schedule<group = [m = {{[0-9]+}}, o = 1], stream = [k = {{[0-9]+}}], whole = [n = 64],
func.func @columns(%A: !A64, %W: !W) -> !M attributes {sizes = #diagram.sizes<m = 4096, o = 4096>} {
  %M = hierarchy.kernel @columns (%a = %A : !A64 as !A64d, %w = %W : !W as !Wd) -> (!M)
      schedule #hierarchy.schedule<group = [m = ?, o = ?], stream = [k = ?], whole = [n = 64]> {
    %c = diagram.contract %a, %w over [k] accumulate f32 : !A64d, !Wd -> !Rr
    %m = diagram.reduce max %c over [n] : !Rr -> !Mr
    hierarchy.yield %m : !Mr
  }
  func.return %M : !M
}
