// Where a shorter form of `tanh` and of quotients is as exact as it has to be, and where it is not: capped scores and the
// logarithm of the sum of their powers, gates, and one beside another number than 1.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!l = tensor<?xf32, #diagram.array<[q]>>

func.func @capped(%S: !S) -> (!S, !l, !S, !S, !S)
    attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.3 : f32
    %cap = arith.constant 5.0 : f32
    %scaled = arith.mulf %s, %scale : f32
    %bounded = math.tanh %scaled : f32
    %t = arith.mulf %cap, %bounded : f32
    diagram.yield %t : f32
  }
  %m = diagram.reduce max %T over [x] : !S -> !l
  %e = diagram.map (%t = %T : !S, %most = %m : !l) -> !S {
    %d = arith.subf %t, %most : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %sum = diagram.reduce add %e over [x] : !S -> !l
  %P = diagram.map (%p = %e : !S, %all = %sum : !l) -> !S {
    %share = arith.divf %p, %all : f32
    diagram.yield %share : f32
  }
  %L = diagram.map (%all = %sum : !l, %most = %m : !l) -> !l {
    %log = math.log %all : f32
    %y = arith.addf %most, %log : f32
    diagram.yield %y : f32
  }
  %gelu = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %scale = arith.constant 0.8 : f32
    %scaled = arith.mulf %s, %scale : f32
    %t = math.tanh %scaled : f32
    %above = arith.addf %one, %t : f32
    %y = arith.mulf %s, %above : f32
    diagram.yield %y : f32
  }
  %silu = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %negative = arith.negf %s : f32
    %power = math.exp %negative : f32
    %divisor = arith.addf %one, %power : f32
    %part = arith.constant 0.75 : f32
    %share = arith.divf %part, %divisor : f32
    %y = arith.divf %s, %divisor : f32
    %z = arith.addf %share, %y : f32
    diagram.yield %z : f32
  }
  %other = diagram.map (%s = %S : !S) -> !S {
    %two = arith.constant 2.0 : f32
    %t = math.tanh %s : f32
    %y = arith.addf %t, %two : f32
    diagram.yield %y : f32
  }
  func.return %P, %L, %gelu, %silu, %other : !S, !l, !S, !S, !S
}
