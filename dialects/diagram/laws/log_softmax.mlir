// The logarithms of the shares of @softmax.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @log_softmax over [x] (%v : !v) -> !v gradient @log_softmax_gradient {
  %m = diagram.reduce max %v over [x] : !v -> !r
  %e = diagram.map (%a = %v : !v, %b = %m : !r) -> !v {
    %shifted = arith.subf %a, %b : f32
    %exp = math.exp %shifted : f32
    diagram.yield %exp : f32
  }
  %l = diagram.reduce add %e over [x] : !v -> !r
  %y = diagram.map (%a = %v : !v, %b = %m : !r, %c = %l : !r) -> !v {
    %shifted = arith.subf %a, %b : f32
    %log = math.log %c : f32
    %share = arith.subf %shifted, %log : f32
    diagram.yield %share : f32
  }
  diagram.yield %y : !v
}
