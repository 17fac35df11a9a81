// A product of integers whose weights lie across the sum, as in `x @ w`: tensor cores take 8 bits along the sum only, so
// the weights are transposed, by a kernel before or on the way to shared memory, as the model finds faster.
//
//   treadle run examples/matmul_int8_nn.mlir --machine h100 --size t=100 --size i=4096

!X = tensor<?x?xi8, #diagram.array<[t, i]>>
!W = tensor<?x?xi8, #diagram.array<[i, o]>>
!r = tensor<?xf32, #diagram.array<[t]>>
!c = tensor<?xf32, #diagram.array<[o]>>
!Z = tensor<?x?xi32, #diagram.array<[t, o]>>
!S = tensor<?x?xf32, #diagram.array<[t, o]>>
!Y = tensor<?x?xf16, #diagram.array<[t, o]>>

func.func @matmul_int8_nn(%X: !X, %W: !W, %x_scale: !r, %w_scale: !c) -> !Y
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
