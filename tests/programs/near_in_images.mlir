// Attention of each place of an image to those near it: two lines before and one behind, one column before and two behind.

!Q = tensor<2x5x7x16xf16, #diagram.array<[h, r, c, d]>>
!K = tensor<2x5x7x16xf16, #diagram.array<[h, x, y, d]>>
!S = tensor<2x5x7x5x7xf32, #diagram.array<[h, r, c, x, y]>>
!P = tensor<2x5x7x5x7xf16, #diagram.array<[h, r, c, x, y]>>
!m = tensor<2x5x7xf32, #diagram.array<[h, r, c]>>
!O = tensor<2x5x7x16xf32, #diagram.array<[h, r, c, d]>>

func.func @near_in_images(%Q: !Q, %K: !K, %V: !K) -> !O {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %near = diagram.where %S if "r <= x + 2 and x <= r + 1 and c <= y + 1 and y <= c + 2" : !S
  %m = diagram.reduce max %near over [x, y] : !S -> !m
  %E = diagram.map (%s = %near : !S, %n = %m : !m) -> !S {
    %t = arith.subf %s, %n : f32
    %e = math.exp %t : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x, y] : !S -> !m
  %P = diagram.cast %E : !S -> !P
  %A = diagram.contract %P, %V over [x, y] accumulate f32 : !P, !K -> !O
  %O = diagram.map (%a = %A : !O, %b = %l : !m) -> !O {
    %o = arith.divf %a, %b : f32
    diagram.yield %o : f32
  }
  func.return %O : !O
}
