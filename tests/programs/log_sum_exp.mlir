// The logarithm of the sum of exponentials of each row.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>

func.func @log_sum_exp(%S: !S) -> !r attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %m = diagram.reduce max %S over [x] : !S -> !r
  %E = diagram.map (%s = %S : !S, %r = %m : !r) -> !S {
    %d = arith.subf %s, %r : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !S -> !r
  %L = diagram.map (%r = %m : !r, %t = %l : !r) -> !r {
    %g = math.log %t : f32
    %y = arith.addf %r, %g : f32
    diagram.yield %y : f32
  }
  func.return %L : !r
}
