// The mean of the squared distances from the mean (not the estimate that divides by one less).

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @variance over [x] (%v : !v) -> !r gradient @variance_gradient {
  %n = diagram.extent "x" : i32
  %s = diagram.reduce add %v over [x] : !v -> !r
  %m = diagram.map (%a = %s : !r, %b = %n : i32) -> !r {
    %count = arith.sitofp %b : i32 to f32
    %mean = arith.divf %a, %count : f32
    diagram.yield %mean : f32
  }
  %squares = diagram.map (%a = %v : !v, %b = %m : !r) -> !v {
    %distance = arith.subf %a, %b : f32
    %square = arith.mulf %distance, %distance : f32
    diagram.yield %square : f32
  }
  %t = diagram.reduce add %squares over [x] : !v -> !r
  %y = diagram.map (%a = %t : !r, %b = %n : i32) -> !r {
    %count = arith.sitofp %b : i32 to f32
    %mean = arith.divf %a, %count : f32
    diagram.yield %mean : f32
  }
  diagram.yield %y : !r
}
