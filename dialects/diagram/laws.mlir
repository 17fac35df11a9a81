// The standard laws: functions along one axis, by their plain meaning. How they stream is derived.

!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>

diagram.law @softmax over [x] (%v : !v) -> !v {
  %m = diagram.reduce max %v over [x] : !v -> !r
  %e = diagram.map (%a = %v : !v, %b = %m : !r) -> !v {
    %shifted = arith.subf %a, %b : f32
    %exp = math.exp %shifted : f32
    diagram.yield %exp : f32
  }
  %l = diagram.reduce add %e over [x] : !v -> !r
  %y = diagram.map (%a = %e : !v, %b = %l : !r) -> !v {
    %share = arith.divf %a, %b : f32
    diagram.yield %share : f32
  }
  diagram.yield %y : !v
}

diagram.law @log_softmax over [x] (%v : !v) -> !v {
  %m = diagram.reduce max %v over [x] : !v -> !r
  %e = diagram.map (%a = %v : !v, %b = %m : !r) -> !v {
    %shifted = arith.subf %a, %b : f32
    %exp = math.exp %shifted : f32
    diagram.yield %exp : f32
  }
  %l = diagram.reduce add %e over [x] : !v -> !r
  %y = diagram.map (%a = %v : !v, %b = %m : !r, %c = %l : !r) -> !v {
    %shifted = arith.subf %a, %b : f32
    %log = math.log %c : f32
    %share = arith.subf %shifted, %log : f32
    diagram.yield %share : f32
  }
  diagram.yield %y : !v
}

// Where the maximum is infinite, so is the result: of nothing, or of nothing but -inf, it is -inf.
diagram.law @log_sum_exp over [x] (%v : !v) -> !r {
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

// The mean of nothing is 0 / 0, which is NaN.
diagram.law @mean over [x] (%v : !v) -> !r {
  %n = diagram.extent "x" : i32
  %s = diagram.reduce add %v over [x] : !v -> !r
  %y = diagram.map (%a = %s : !r, %b = %n : i32) -> !r {
    %count = arith.sitofp %b : i32 to f32
    %mean = arith.divf %a, %count : f32
    diagram.yield %mean : f32
  }
  diagram.yield %y : !r
}

diagram.law @mean_square over [x] (%v : !v) -> !r {
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

// The mean of the squared distances from the mean (not the estimate that divides by one less).
diagram.law @variance over [x] (%v : !v) -> !r {
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
