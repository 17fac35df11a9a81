// Where the maximum is infinite, so is the result: of nothing, or of nothing but -inf, it is -inf.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @log_sum_exp over [x] (%v : !v) -> !r gradient @log_sum_exp_gradient {
  %m = diagram.reduce max %v over [x] : !v -> !r
  %e = diagram.map (%a = %v : !v, %b = %m : !r) -> !v {
    %shifted = arith.subf %a, %b : f32
    %exp = math.exp %shifted : f32
    diagram.yield %exp : f32
  }
  %l = diagram.reduce add %e over [x] : !v -> !r
  %y = diagram.map (%b = %m : !r, %c = %l : !r) -> !r {
    %log = math.log %c : f32
    %sum = arith.addf %b, %log : f32
    %infinity = arith.constant 0x7F800000 : f32
    %size = math.absf %b : f32
    %endless = arith.cmpf oeq, %size, %infinity : f32
    %result = arith.select %endless, %b, %sum : f32
    diagram.yield %result : f32
  }
  diagram.yield %y : !r
}
