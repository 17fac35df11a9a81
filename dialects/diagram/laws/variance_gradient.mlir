// The gradient of @variance: twice each distance from the mean, over their number. The mean moves, too; of distances
// that add up to zero it makes no difference, but elements that are absent count in the number and not in the sum.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @variance_gradient over [x] (%v : !v, %y : !r, %dy : !r) -> !v {
  %n = diagram.extent "x" : i32
  %s = diagram.reduce add %v over [x] : !v -> !r
  %ones = diagram.map (%a = %v : !v) -> !v {
    %one = arith.constant 1.0 : f32
    diagram.yield %one : f32
  }
  %k = diagram.reduce add %ones over [x] : !v -> !r
  %dv = diagram.map (%a = %v : !v, %c = %dy : !r, %d = %s : !r, %e = %k : !r, %b = %n : i32) -> !v {
    %two = arith.constant 2.0 : f32
    %count = arith.sitofp %b : i32 to f32
    %mean = arith.divf %d, %count : f32
    %present = arith.divf %e, %count : f32
    %times = arith.subf %two, %present : f32
    %centre = arith.mulf %mean, %times : f32
    %distance = arith.subf %a, %centre : f32
    %each = arith.divf %two, %count : f32
    %weight = arith.mulf %c, %each : f32
    %slope = arith.mulf %weight, %distance : f32
    diagram.yield %slope : f32
  }
  diagram.yield %dv : !v
}
