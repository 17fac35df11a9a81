// Quotients by numbers that may be 2^-125, a quarter of which is no normal number of f32: these have no reciprocal on the
// machine.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>

func.func @tiny_divisors(%S: !S) -> !S attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %Y = diagram.map (%s = %S : !S) -> !S {
    %tiny = arith.constant 2.3509887e-38 : f32
    %size = math.absf %s : f32
    %divisor = arith.maximumf %size, %tiny : f32
    %y = arith.divf %s, %divisor : f32
    diagram.yield %y : f32
  }
  func.return %Y : !S
}
