// A product of integers: activations and weights in 8 bits, with a scale for each token and for each channel. Tensor
// cores add up the products exactly in 32 bits; what leaves is scaled, and rounded once.
//
//   treadle run examples/matmul_int8.mlir --size t=100 --size i=4096

!X = tensor<?x?xi8, #diagram.array<[t, i]>>
!W = tensor<?x?xi8, #diagram.array<[o, i]>>
!r = tensor<?xf32, #diagram.array<[t]>>
!c = tensor<?xf32, #diagram.array<[o]>>
!Z = tensor<?x?xi32, #diagram.array<[t, o]>>
!S = tensor<?x?xf32, #diagram.array<[t, o]>>
!Y = tensor<?x?xf16, #diagram.array<[t, o]>>

func.func @matmul_int8(%X: !X, %W: !W, %x_scale: !r, %w_scale: !c) -> !Y
    attributes {sizes = #diagram.sizes<t = 70, i = 300, o = 136>} {
  %Z = diagram.contract %X, %W over [i] accumulate i32 : !X, !W -> !Z
  %S = diagram.map (%z = %Z : !Z, %x = %x_scale : !r, %w = %w_scale : !c) -> !S {
    %number = arith.sitofp %z : i32 to f32
    %a = arith.mulf %number, %x : f32
    %s = arith.mulf %a, %w : f32
    diagram.yield %s : f32
  }
  %Y = diagram.cast %S : !S -> !Y
  func.return %Y : !Y
}
