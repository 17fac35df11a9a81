// Two axes, reduced one after the other in two ways: no one reduction over both computes it.
!S = tensor<?x?x?xf32, #diagram.array<[q, x, y]>>
!m = tensor<?x?xf32, #diagram.array<[q, x]>>
!t = tensor<?xf32, #diagram.array<[q]>>

func.func @sum_of_maxima(%S: !S) -> !t attributes {sizes = #diagram.sizes<q = 5, x = 7, y = 6>} {
  %m = diagram.reduce max %S over [y] : !S -> !m
  %t = diagram.reduce add %m over [x] : !m -> !t
  func.return %t : !t
}
