// The mean of the squares; of nothing it is 0 / 0, which is NaN.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @mean_square over [x] (%v : !v) -> !r gradient @mean_square_gradient {
  %n = diagram.extent "x" : i32
  %squares = diagram.map (%a = %v : !v) -> !v {
    %square = arith.mulf %a, %a : f32
    diagram.yield %square : f32
  }
  %s = diagram.reduce add %squares over [x] : !v -> !r
  %y = diagram.map (%a = %s : !r, %b = %n : i32) -> !r {
    %count = arith.sitofp %b : i32 to f32
    %mean = arith.divf %a, %count : f32
    diagram.yield %mean : f32
  }
  diagram.yield %y : !r
}
