// Softmax of rows, decorated by hand: the result has the streamed axis and needs the finished state, so
// the axis is streamed twice.

!A = tensor<?x?xf32, #diagram.array<[row, x]>>
!Ad = tensor<?x?xf32, #diagram.array<[row, x], level = device>>
!S = tensor<?x?xf32, #diagram.array<[row, x], level = register>>
!m = tensor<?xf32, #diagram.array<[row], level = register>>

func.func @softmax(%A: !A) -> !A attributes {sizes = #diagram.sizes<row = 77, x = 1000>} {
  %P = hierarchy.kernel @softmax (%Ad = %A : !A as !Ad) -> (!A)
      schedule #hierarchy.schedule<group = [row = ?], stream = [x = ?]> {
    %m = diagram.reduce max %Ad over [x] : !Ad -> !m
    %E = diagram.map (%t = %Ad : !Ad, %top = %m : !m) -> !S {
      %shifted = arith.subf %t, %top : f32
      %exp = math.exp %shifted : f32
      diagram.yield %exp : f32
    }
    %l = diagram.reduce add %E over [x] : !S -> !m
    %Y = diagram.map (%e = %E : !S, %sum = %l : !m) -> !S {
      %share = arith.divf %e, %sum : f32
      diagram.yield %share : f32
    }
    hierarchy.yield %Y : !S
  }
  func.return %P : !A
}
