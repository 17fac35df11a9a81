// The gradient of @softmax: shares add up to one, so what is gained by one is lost by the others.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @softmax_gradient over [x] (%v : !v, %y : !v, %dy : !v) -> !v {
  %gains = diagram.map (%a = %y : !v, %b = %dy : !v) -> !v {
    %gain = arith.mulf %a, %b : f32
    diagram.yield %gain : f32
  }
  %s = diagram.reduce add %gains over [x] : !v -> !r
  %dv = diagram.map (%a = %y : !v, %b = %dy : !v, %c = %s : !r) -> !v {
    %beyond = arith.subf %b, %c : f32
    %slope = arith.mulf %a, %beyond : f32
    diagram.yield %slope : f32
  }
  diagram.yield %dv : !v
}
