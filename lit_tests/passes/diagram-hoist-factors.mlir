// RUN: xdsl-opt -p 'diagram-hoist-factors' %s | filecheck %s

!E = tensor<?x8xf32, #diagram.array<[q, x]>>
!L = tensor<?x?xf32, #diagram.array<[q, k]>>
!H = tensor<?x8xf16, #diagram.array<[q, x]>>
!l = tensor<?xf32, #diagram.array<[q]>>
!V = tensor<8x?xf32, #diagram.array<[x, e]>>
!W = tensor<8x?xf16, #diagram.array<[x, e]>>
!O = tensor<?x?xf32, #diagram.array<[q, e]>>

// A divisor that is known after the sum over x moves past a product over x. The axis is never empty.
// CHECK-LABEL: func.func @divisor
// CHECK:       %l = diagram.reduce add %E over [x]
// CHECK-NEXT:  %O_sum = diagram.contract %E, %V over [x] accumulate f32
// CHECK-NEXT:  %O = diagram.map (%o_sum = %O_sum : {{.*}}, %{{.*}} = %l : {{.*}})
// CHECK-NEXT:    arith.divf %o_sum
func.func @divisor(%E: !E, %V: !V) -> !O {
  %l = diagram.reduce add %E over [x] : !E -> !l
  %P = diagram.map (%a = %E : !E, %b = %l : !l) -> !E {
    %p = arith.divf %a, %b : f32
    diagram.yield %p : f32
  }
  %O = diagram.contract %P, %V over [x] accumulate f32 : !E, !V -> !O
  func.return %O : !O
}

// A symbolic axis may be empty: the plain sum is 0 then, and so is the moved one, divided by 1.
// CHECK-LABEL: func.func @guarded
// CHECK:       %y_sum = diagram.reduce add %E over [k]
// CHECK-NEXT:  %extent_k = diagram.extent "k" : i32
// CHECK-NEXT:  %y = diagram.map (%[[sum:.*]] = %y_sum : {{.*}}, %[[n:.*]] = %extent_k : i32, %[[l:.*]] = %l : {{.*}})
// CHECK:         %[[any:.*]] = arith.cmpi sgt, %[[n]]
// CHECK:         %[[divisor:.*]] = arith.select %[[any]], %[[l]], %{{.*}} : f32
// CHECK:         arith.divf %[[sum]], %[[divisor]] : f32
func.func @guarded(%E: !L) -> !l {
  %l = diagram.reduce add %E over [k] : !L -> !l
  %P = diagram.map (%a = %E : !L, %b = %l : !l) -> !L {
    %p = arith.divf %a, %b : f32
    diagram.yield %p : f32
  }
  %y = diagram.reduce add %P over [k] : !L -> !l
  func.return %y : !l
}

// Nothing bounds E, so it may not be rounded to f16 before it is divided.
// CHECK-LABEL: func.func @refused
// CHECK-SAME:  "%l stays in the sum %O", "refused", "%P16 would be rounded to f16 without it, and it may overflow f16 (no bound is known)"
// CHECK:       %O = diagram.contract %P16, %W over [x]
func.func @refused(%E: !E, %W: !W) -> !O {
  %l = diagram.reduce add %E over [x] : !E -> !l
  %P = diagram.map (%a = %E : !E, %b = %l : !l) -> !E {
    %p = arith.divf %a, %b : f32
    diagram.yield %p : f32
  }
  %P16 = diagram.cast %P : !E -> !H
  %O = diagram.contract %P16, %W over [x] accumulate f32 : !H, !W -> !O
  func.return %O : !O
}

// exp(s - max s) is at most 1, and 1 somewhere along x: it is rounded first.
// CHECK-LABEL: func.func @rounded
// CHECK:       %P16 = diagram.cast %E
// CHECK-NEXT:  %O_sum = diagram.contract %P16, %W over [x]
// CHECK-NEXT:  %O = diagram.map (%{{.*}} = %O_sum : {{.*}}, %{{.*}} = %l : {{.*}})
func.func @rounded(%S: !E, %W: !W) -> !O {
  %m = diagram.reduce max %S over [x] : !E -> !l
  %E = diagram.map (%s = %S : !E, %r = %m : !l) -> !E {
    %d = arith.subf %s, %r : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !E -> !l
  %P = diagram.map (%a = %E : !E, %b = %l : !l) -> !E {
    %p = arith.divf %a, %b : f32
    diagram.yield %p : f32
  }
  %P16 = diagram.cast %P : !E -> !H
  %O = diagram.contract %P16, %W over [x] accumulate f32 : !H, !W -> !O
  func.return %O : !O
}

// A constant positive scale passes a maximum; a negative one and one known at launch do not.
// CHECK-LABEL: func.func @scales
// CHECK:       %S_max = diagram.reduce max %S over [x]
// CHECK-NEXT:  %m = diagram.map (%{{.*}} = %S_max : {{.*}})
// CHECK:       %n = diagram.reduce max %B over [x]
// CHECK:       %r = diagram.reduce max %C over [x]
func.func @scales(%S: !E, %runtime: f32) -> (!l, !l, !l) {
  %A = diagram.map (%s = %S : !E) -> !E {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %m = diagram.reduce max %A over [x] : !E -> !l
  %B = diagram.map (%s = %S : !E) -> !E {
    %scale = arith.constant -0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %n = diagram.reduce max %B over [x] : !E -> !l
  %C = diagram.map (%s = %S : !E, %scale = %runtime : f32) -> !E {
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %r = diagram.reduce max %C over [x] : !E -> !l
  func.return %m, %n, %r : !l, !l, !l
}

// A constant factor that depends on no reduction stays where it is.
// CHECK-LABEL: func.func @left
// CHECK:       %y = diagram.reduce add %T over [x]
// CHECK-NEXT:  func.return %y
func.func @left(%E: !E, %w: !l) -> !l {
  %T = diagram.map (%a = %E : !E, %b = %w : !l) -> !E {
    %t = arith.mulf %a, %b : f32
    diagram.yield %t : f32
  }
  %y = diagram.reduce add %T over [x] : !E -> !l
  func.return %y : !l
}

// Nothing but the factor is summed: it stays, for a sum of ones would be left behind.
// CHECK-LABEL: func.func @alone
// CHECK:       %y = diagram.contract %E, %l over [x]
// CHECK-NEXT:  func.return %y
func.func @alone(%E: !E) -> !l {
  %l = diagram.reduce add %E over [x] : !E -> !l
  %y = diagram.contract %E, %l over [x] accumulate f32 : !E, !l -> !l
  func.return %y : !l
}
