// Moving average of every channel: the mean of the 8 samples that begin at each position. Windows are an affine read.
//
//   treadle run examples/moving_average.mlir --size l=10000

!X = tensor<?x?xf32, #diagram.array<[l, c]>>
!windows = tensor<?x8x?xf32, #diagram.array<[t, r, c]>>
!Y = tensor<?x?xf32, #diagram.array<[t, c]>>

func.func @moving_average(%X: !X) -> !Y attributes {sizes = #diagram.sizes<l = 300, c = 48>} {
  %windows = diagram.read %X at "t + r, c" : !X -> !windows
  %sum = diagram.reduce add %windows over [r] : !windows -> !Y
  %Y = diagram.map (%s = %sum : !Y) -> !Y {
    %eighth = arith.constant 0.125 : f32
    %mean = arith.mulf %s, %eighth : f32
    diagram.yield %mean : f32
  }
  func.return %Y : !Y
}
