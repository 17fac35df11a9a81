// The gradient of @log_softmax: a share moves all the others.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @log_softmax_gradient over [x] (%v : !v, %y : !v, %dy : !v) -> !v {
  %s = diagram.reduce add %dy over [x] : !v -> !r
  %dv = diagram.map (%a = %y : !v, %b = %dy : !v, %c = %s : !r) -> !v {
    %share = math.exp %a : f32
    %lost = arith.mulf %share, %c : f32
    %slope = arith.subf %b, %lost : f32
    diagram.yield %slope : f32
  }
  diagram.yield %dv : !v
}
