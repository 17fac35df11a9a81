// The gradient of @mean: every element counts alike.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @mean_gradient over [x] (%v : !v, %y : !r, %dy : !r) -> !v {
  %n = diagram.extent "x" : i32
  %dv = diagram.map (%a = %v : !v, %c = %dy : !r, %b = %n : i32) -> !v {
    %count = arith.sitofp %b : i32 to f32
    %slope = arith.divf %c, %count : f32
    diagram.yield %slope : f32
  }
  diagram.yield %dv : !v
}
