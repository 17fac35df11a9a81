// The gradient of @mean_square: twice each element, over their number.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @mean_square_gradient over [x] (%v : !v, %y : !r, %dy : !r) -> !v {
  %n = diagram.extent "x" : i32
  %dv = diagram.map (%a = %v : !v, %c = %dy : !r, %b = %n : i32) -> !v {
    %two = arith.constant 2.0 : f32
    %count = arith.sitofp %b : i32 to f32
    %each = arith.divf %two, %count : f32
    %weight = arith.mulf %c, %each : f32
    %slope = arith.mulf %weight, %a : f32
    diagram.yield %slope : f32
  }
  diagram.yield %dv : !v
}
