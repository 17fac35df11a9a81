// Mean and variance of each row. The sum of squared distances from the mean does not split, so it is a second
// stream, and the normalised rows are a third.

!X = tensor<?x?xf32, #diagram.array<[i, j]>>
!r = tensor<?xf32, #diagram.array<[i]>>

func.func @variance(%X: !X) -> (!X, !r) attributes {sizes = #diagram.sizes<i = 9, j = 37>} {
  %total = diagram.reduce add %X over [j] : !X -> !r
  %mean = diagram.map (%t = %total : !r) -> !r {
    %share = arith.constant 0.03 : f32
    %m = arith.mulf %t, %share : f32
    diagram.yield %m : f32
  }
  %D = diagram.map (%x = %X : !X, %m = %mean : !r) -> !X {
    %d = arith.subf %x, %m : f32
    diagram.yield %d : f32
  }
  %squares = diagram.map (%d = %D : !X) -> !X {
    %s = arith.mulf %d, %d : f32
    diagram.yield %s : f32
  }
  %v = diagram.reduce add %squares over [j] : !X -> !r
  %scale = diagram.map (%s = %v : !r) -> !r {
    %epsilon = arith.constant 0.001 : f32
    %u = arith.addf %s, %epsilon : f32
    %y = math.rsqrt %u : f32
    diagram.yield %y : f32
  }
  %N = diagram.map (%d = %D : !X, %s = %scale : !r) -> !X {
    %n = arith.mulf %d, %s : f32
    diagram.yield %n : f32
  }
  func.return %N, %v : !X, !r
}
