// Shares that add up to one: powers of the distances from the maximum, over their sum.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @softmax over [x] (%v : !v) -> !v gradient @softmax_gradient {
  %m = diagram.reduce max %v over [x] : !v -> !r
  %e = diagram.map (%a = %v : !v, %b = %m : !r) -> !v {
    %shifted = arith.subf %a, %b : f32
    %exp = math.exp %shifted : f32
    diagram.yield %exp : f32
  }
  %l = diagram.reduce add %e over [x] : !v -> !r
  %y = diagram.map (%a = %e : !v, %b = %l : !r) -> !v {
    %share = arith.divf %a, %b : f32
    diagram.yield %share : f32
  }
  diagram.yield %y : !v
}
