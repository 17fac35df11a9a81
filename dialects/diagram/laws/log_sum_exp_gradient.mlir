// The gradient of @log_sum_exp: the shares of the powers in their sum. Where the sum is infinite there is none to be
// had: one of nothing, or of nothing but -inf, moves with none of its elements.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @log_sum_exp_gradient over [x] (%v : !v, %y : !r, %dy : !r) -> !v {
  %dv = diagram.map (%a = %v : !v, %b = %y : !r, %c = %dy : !r) -> !v {
    %zero = arith.constant 0.0 : f32
    %infinity = arith.constant 0x7F800000 : f32
    %distance = arith.subf %a, %b : f32
    %exp = math.exp %distance : f32
    %slope = arith.mulf %exp, %c : f32
    %size = math.absf %b : f32
    %endless = arith.cmpf oeq, %size, %infinity : f32
    %result = arith.select %endless, %zero, %slope : f32
    diagram.yield %result : f32
  }
  diagram.yield %dv : !v
}
