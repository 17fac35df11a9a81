// The mean over all elements of the axis, absent ones included. The mean of nothing is 0 / 0, which is NaN.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @mean over [x] (%v : !v) -> !r gradient @mean_gradient {
  %n = diagram.extent "x" : i32
  %s = diagram.reduce add %v over [x] : !v -> !r
  %y = diagram.map (%a = %s : !r, %b = %n : i32) -> !r {
    %count = arith.sitofp %b : i32 to f32
    %mean = arith.divf %a, %count : f32
    diagram.yield %mean : f32
  }
  diagram.yield %y : !r
}
