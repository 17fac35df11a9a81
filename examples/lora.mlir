// A layer with a low-rank update (LoRA): Y = X W + 2 (X A) B, with A and B of rank 16. One kernel makes X A; the other
// one multiplies it by B first, doubles that, and adds X W to it: one accumulator, so tiles are as large as for X W alone.
//
//   treadle run examples/lora.mlir --size t=1000

!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!W = tensor<?x?xf16, #diagram.array<[i, j]>>
!A = tensor<?x16xf16, #diagram.array<[i, r]>>
!B = tensor<16x?xf16, #diagram.array<[r, j]>>
!L = tensor<?x16xf32, #diagram.array<[t, r]>>
!L16 = tensor<?x16xf16, #diagram.array<[t, r]>>
!Z = tensor<?x?xf32, #diagram.array<[t, j]>>
!Y = tensor<?x?xf16, #diagram.array<[t, j]>>

func.func @lora(%X: !X, %W: !W, %A: !A, %B: !B) -> !Y
    attributes {sizes = #diagram.sizes<t = 100, i = 256, j = 136>} {
  %base = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Z
  %down = diagram.contract %X, %A over [i] accumulate f32 : !X, !A -> !L
  %down16 = diagram.cast %down : !L -> !L16
  %up = diagram.contract %down16, %B over [r] accumulate f32 : !L16, !B -> !Z
  %sum = diagram.map (%x = %base : !Z, %u = %up : !Z) -> !Z {
    %scale = arith.constant 2.0 : f32
    %scaled = arith.mulf %u, %scale : f32
    %s = arith.addf %x, %scaled : f32
    diagram.yield %s : f32
  }
  %Y = diagram.cast %sum : !Z -> !Y
  func.return %Y : !Y
}
