// RUN: xdsl-opt -p 'diagram-hoist-factors' %s | filecheck %s

!E = tensor<?x8xf32, #diagram.array<[q, x]>>
!L = tensor<?x?xf32, #diagram.array<[q, k]>>
!H = tensor<?x8xf16, #diagram.array<[q, x]>>
!l = tensor<?xf32, #diagram.array<[q]>>
!s = tensor<8xf16, #diagram.array<[x]>>
!V = tensor<8x?xf32, #diagram.array<[x, e]>>
!W = tensor<8x?xf16, #diagram.array<[x, e]>>
!O = tensor<?x?xf32, #diagram.array<[q, e]>>
!M = tensor<?x8xf32, #diagram.array<[k, x]>>

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
// CHECK-SAME:  "%l stays in the sum %O", "refused", "%P16 would be rounded to f16 without it, and it may overflow f16 (no bound is known of %E: rounded to f16, or clipped at both ends, it has one)"
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

// Numbers of f16 that vary along the sum stay, and the divisor leaves them: it is at least 1, so that what the program
// rounds is no larger than what is rounded now, and powers times numbers of f16 fit f16.
// CHECK-LABEL: func.func @beside_a_scale
// CHECK:       %P16 = diagram.map (%[[e:.*]] = %E : {{.*}}, %[[s:.*]] = %s : {{.*}}) -> {{.*}} {
// CHECK-NOT:     arith.divf
// CHECK:       %O_sum = diagram.contract %P16{{.*}}, %W over [x]
// CHECK-NEXT:  %O = diagram.map (%[[sum:.*]] = %O_sum : {{.*}}, %[[l:.*]] = %l : {{.*}})
// CHECK-NEXT:    arith.divf %[[sum]], %[[l]] : f32
func.func @beside_a_scale(%S: !E, %s: !s, %W: !W) -> !O {
  %m = diagram.reduce max %S over [x] : !E -> !l
  %E = diagram.map (%s_1 = %S : !E, %r = %m : !l) -> !E {
    %d = arith.subf %s_1, %r : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !E -> !l
  %P = diagram.map (%a = %E : !E, %b = %l : !l, %c = %s : !s) -> !E {
    %p = arith.divf %a, %b : f32
    %wide = arith.extf %c : f16 to f32
    %y = arith.mulf %p, %wide : f32
    diagram.yield %y : f32
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

// Between a sum and a product a number leaves, and what is summed is the product's: not where something else takes that,
// and not a factor of the program, which may be infinite.
// CHECK-LABEL: func.func @of_product
// CHECK:       %y_sum = diagram.reduce add %P over [x]
// CHECK-NEXT:  %y = diagram.map (%[[Y:.*]] = %y_sum : {{.*}})
// CHECK:         arith.mulf %[[Y]], %{{.*}} : f32
// CHECK:       %z = diagram.reduce add %B over [x]
// CHECK:       %v = diagram.reduce add %C over [x]
// CHECK-NEXT:  func.return %y, %z, %v, %B
func.func @of_product(%K: !L, %V: !M, %w: !l) -> (!l, !l, !l, !E) {
  %P = diagram.contract %K, %V over [k] accumulate f32 : !L, !M -> !E
  %A = diagram.map (%p = %P : !E) -> !E {
    %half = arith.constant 0.125 : f32
    %t = arith.mulf %half, %p : f32
    diagram.yield %t : f32
  }
  %y = diagram.reduce add %A over [x] : !E -> !l
  %Q = diagram.contract %K, %V over [k] accumulate f32 : !L, !M -> !E
  %B = diagram.map (%p = %Q : !E) -> !E {
    %half = arith.constant 0.125 : f32
    %t = arith.mulf %p, %half : f32
    diagram.yield %t : f32
  }
  %z = diagram.reduce add %B over [x] : !E -> !l
  %R = diagram.contract %K, %V over [k] accumulate f32 : !L, !M -> !E
  %C = diagram.map (%p = %R : !E, %b = %w : !l) -> !E {
    %t = arith.mulf %p, %b : f32
    diagram.yield %t : f32
  }
  %v = diagram.reduce add %C over [x] : !E -> !l
  func.return %y, %z, %v, %B : !l, !l, !l, !E
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

// A number of the program that is said to be above zero is a scale, too; one that is not stays.
// CHECK-LABEL: func.func @given
// CHECK:       %E_max = diagram.reduce max %E over [x]
// CHECK-NEXT:  %m = diagram.map (%[[M:.*]] = %E_max : tensor<?xf32, {{.*}}>, %[[G:.*]] = %given : f32)
// CHECK:         %[[S:.*]] = arith.maximumf %[[G]], %least : f32
// CHECK-NEXT:    arith.mulf %[[M]], %[[S]] : f32
func.func @given(%E: !E, %given: f32) -> !l {
  %T = diagram.map (%a = %E : !E, %g = %given : f32) -> !E {
    %least = arith.constant 1.0e-30 : f32
    %scale = arith.maximumf %g, %least : f32
    %t = arith.mulf %a, %scale : f32
    diagram.yield %t : f32
  }
  %m = diagram.reduce max %T over [x] : !E -> !l
  func.return %m : !l
}

// A factor of powers below their maximum is a summand of the exponents, and what their sum is divided by.
// CHECK-LABEL: func.func @raised
// CHECK:       %P = diagram.map (%[[S:.*]] = %E : {{.*}}, %[[M:.*]] = %m : {{.*}}
// CHECK-NEXT:    %[[D:.*]] = arith.subf %[[S]], %[[M]] : f32
// CHECK-NEXT:    %[[L:.*]] = arith.constant 5.54517746 : f32
// CHECK-NEXT:    %[[U:.*]] = arith.addf %[[D]], %[[L]] : f32
// CHECK-NEXT:    math.exp %[[U]] : f32
// CHECK:       %l_raised = diagram.reduce add %P over [x]
// CHECK-NEXT:  %l = diagram.map (%[[R:.*]] = %l_raised
// CHECK-NEXT:    %[[B:.*]] = arith.constant 3.906250e-03 : f32
// CHECK-NEXT:    arith.mulf %[[R]], %[[B]] : f32
// CHECK:       func.return %P, %l
func.func @raised(%E: !E) -> (!E, !l) {
  %m = diagram.reduce max %E over [x] : !E -> !l
  %e = diagram.map (%s = %E : !E, %r = %m : !l) -> !E {
    %d = arith.subf %s, %r : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %l = diagram.reduce add %e over [x] : !E -> !l
  %P = diagram.map (%a = %e : !E) -> !E {
    %most = arith.constant 256.0 : f32
    %y = arith.mulf %a, %most : f32
    diagram.yield %y : f32
  }
  func.return %P, %l : !E, !l
}

// Powers that leave as they are keep their factor beside them: it would cost as much on the other side.
// CHECK-LABEL: func.func @kept
// CHECK:       %P = diagram.map (%[[A:.*]] = %e
// CHECK:         arith.mulf %[[A]], %most : f32
func.func @kept(%E: !E) -> (!E, !E) {
  %m = diagram.reduce max %E over [x] : !E -> !l
  %e = diagram.map (%s = %E : !E, %r = %m : !l) -> !E {
    %d = arith.subf %s, %r : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %P = diagram.map (%a = %e : !E) -> !E {
    %most = arith.constant 256.0 : f32
    %y = arith.mulf %a, %most : f32
    diagram.yield %y : f32
  }
  func.return %P, %e : !E, !E
}

!X = tensor<3x13xf32, #diagram.array<[q, x]>>
!Y = tensor<3x13x5xf32, #diagram.array<[q, x, y]>>
!t = tensor<3xf32, #diagram.array<[q]>>
// CHECK-LABEL: func.func @axis_of_the_map_alone
// CHECK-SAME:  "factors stay in the sum %s", "refused", "nothing that would be left to sum varies along 'y'"
// CHECK:       diagram.reduce add %M over [x, y]
func.func @axis_of_the_map_alone(%X: !X) -> !t {
  %l = diagram.reduce add %X over [x] : !X -> !t
  %t = diagram.map (%a = %l : !t) -> !t {
    %d = math.tanh %a : f32
    diagram.yield %d : f32
  }
  %M = diagram.map (%a = %X : !X, %b = %t : !t) -> !Y {
    %d = arith.mulf %a, %b : f32
    diagram.yield %d : f32
  }
  %s = diagram.reduce add %M over [x, y] : !Y -> !t
  func.return %s : !t
}

// Of a row that a condition leaves empty the sum is 0, and so it stays: %l, in which the largest power is 1, tells which
// rows these are, also where the power of the sink makes the divisor no number.
// CHECK-LABEL: func.func @sink
// CHECK:       %l = diagram.reduce add %E over [x]
// CHECK-NEXT:  %O_sum = diagram.contract %E, %V over [x] accumulate f32
// CHECK-NEXT:  %O = diagram.map (%[[l:[a-z0-9_]+]] = %l : {{.*}}, %[[sum:[a-z0-9_]+]] = %O_sum : {{.*}}, %{{[a-z0-9_]+}} = %sink : {{.*}}, %{{[a-z0-9_]+}} = %m : {{.*}})
// CHECK-NEXT:    %[[zero:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    %[[any:.*]] = arith.cmpf une, %[[l]], %[[zero]] : f32
// CHECK:         %[[all:.*]] = arith.addf %[[l]], %e : f32
// CHECK-NEXT:    %[[quotient:.*]] = arith.divf %[[sum]], %[[all]] : f32
// CHECK-NEXT:    arith.select %[[any]], %[[quotient]], %[[zero]] : f32
func.func @sink(%S: !E, %V: !V, %sink: !l) -> !O {
  %W = diagram.where %S if "x <= q" : !E
  %m = diagram.reduce max %W over [x] : !E -> !l
  %E = diagram.map (%s = %W : !E, %r = %m : !l) -> !E {
    %d = arith.subf %s, %r : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !E -> !l
  %P = diagram.map (%a = %E : !E, %b = %l : !l, %r = %m : !l, %k = %sink : !l) -> !E {
    %d = arith.subf %k, %r : f32
    %e = math.exp %d : f32
    %n = arith.addf %b, %e : f32
    %p = arith.divf %a, %n : f32
    diagram.yield %p : f32
  }
  %O = diagram.contract %P, %V over [x] accumulate f32 : !E, !V -> !O
  func.return %O : !O
}

// What is zero where a condition says so that does not vary along the sum has factors of one there: of a row of nothing
// but -inf the shares are 0, and so is what they weigh.
// CHECK-LABEL: func.func @choice
// CHECK:       %l = diagram.reduce add %E over [x]
// CHECK-NEXT:  %P = diagram.map (%[[m:[a-z0-9_]+]] = %m : {{.*}}, %[[e:[a-z0-9_]+]] = %E : {{.*}})
// CHECK:         %none = arith.cmpf oeq, %[[m]], %{{.*}}
// CHECK:         %[[zero:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    arith.select %none, %[[zero]], %[[e]] : f32
// CHECK:       %O_sum = diagram.contract %P, %V over [x] accumulate f32
// CHECK-NEXT:  %O = diagram.map (%[[sum:[a-z0-9_]+]] = %O_sum : {{.*}}, %[[m:[a-z0-9_]+]] = %m : {{.*}}, %[[l:[a-z0-9_]+]] = %l : {{.*}})
// CHECK:         %none = arith.cmpf oeq, %[[m]], %{{.*}}
// CHECK-NEXT:    %[[one:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:    %[[divisor:.*]] = arith.select %none, %[[one]], %[[l]] : f32
// CHECK-NEXT:    arith.divf %[[sum]], %[[divisor]] : f32
func.func @choice(%S: !E, %V: !V) -> !O {
  %m = diagram.reduce max %S over [x] : !E -> !l
  %E = diagram.map (%s = %S : !E, %r = %m : !l) -> !E {
    %d = arith.subf %s, %r : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !E -> !l
  %P = diagram.map (%a = %E : !E, %b = %l : !l, %r = %m : !l) -> !E {
    %bottom = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %none = arith.cmpf oeq, %r, %bottom : f32
    %p = arith.divf %a, %b : f32
    %chosen = arith.select %none, %zero, %p : f32
    diagram.yield %chosen : f32
  }
  %O = diagram.contract %P, %V over [x] accumulate f32 : !E, !V -> !O
  func.return %O : !O
}

// Of a condition that random bits tell the divisor leaves, too: powers are multiplied by what is chosen, so that where one is
// no number the sum is none. Data may leave out whole rows.
// CHECK-LABEL: func.func @drawn
// CHECK:       %P = diagram.map (%[[i:[a-z0-9_]+]] = %I : {{.*}}, %[[j:[a-z0-9_]+]] = %J : {{.*}}, %[[t:[a-z0-9_]+]] = %T : {{.*}}, %[[e:[a-z0-9_]+]] = %E : {{.*}})
// CHECK:         %bits = diagram.random 16 of %{{.*}} at %[[i]], %[[j]]
// CHECK:         %is = arith.cmpi slt, %bits, %{{.*}}
// CHECK:         %[[chosen:.*]] = arith.select %is, %[[t]], %{{.*}} : f32
// CHECK-NEXT:    arith.mulf %[[chosen]], %[[e]] : f32
// CHECK:       %O_sum = diagram.contract %P, %V over [x] accumulate f32
// CHECK-NEXT:  %O = diagram.map (%[[sum:[a-z0-9_]+]] = %O_sum : {{.*}}, %[[l:[a-z0-9_]+]] = %l : {{.*}})
// CHECK-NEXT:    arith.divf %[[sum]], %[[l]] : f32
func.func @drawn(%S: !E, %T: !E, %V: !V) -> !O {
  %m = diagram.reduce max %S over [x] : !E -> !l
  %E = diagram.map (%s = %S : !E, %r = %m : !l) -> !E {
    %d = arith.subf %s, %r : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !E -> !l
  %I = diagram.index -> tensor<?xi32, #diagram.array<[q]>>
  %J = diagram.index -> tensor<8xi32, #diagram.array<[x]>>
  %P = diagram.map (%a = %E : !E, %b = %l : !l, %t = %T : !E, %i = %I : tensor<?xi32, #diagram.array<[q]>>, %j = %J : tensor<8xi32, #diagram.array<[x]>>) -> !E {
    %zero = arith.constant 0.0 : f32
    %seed = arith.constant 7 : i32
    %most = arith.constant 60000 : i32
    %bits = diagram.random 16 of %seed at %i, %j : i32
    %is = arith.cmpi slt, %bits, %most : i32
    %p = arith.divf %a, %b : f32
    %q = arith.mulf %p, %t : f32
    %chosen = arith.select %is, %q, %zero : f32
    diagram.yield %chosen : f32
  }
  %O = diagram.contract %P, %V over [x] accumulate f32 : !E, !V -> !O
  func.return %O : !O
}

// So it does of shares that are zero in some rows, as another choice says: the power that is multiplied is that choice.
// CHECK-LABEL: func.func @drawn_of_a_choice
// CHECK-SAME:  "%m, %l past the sum %O over [x]", "linearity of the sum"
// CHECK:       %P = diagram.map (%[[i:[a-z0-9_]+]] = %I : {{.*}}, %[[j:[a-z0-9_]+]] = %J : {{.*}}, %[[m:[a-z0-9_]+]] = %m : {{.*}}, %[[e:[a-z0-9_]+]] = %E : {{.*}})
// CHECK:         %bits = diagram.random 16 of %{{.*}} at %[[i]], %[[j]]
// CHECK:         %is = arith.cmpi slt, %bits, %{{.*}}
// CHECK:         %[[left:.*]] = arith.select %is, %{{.*}}, %{{.*}} : f32
// CHECK:         %none = arith.cmpf oeq, %[[m]], %{{.*}} : f32
// CHECK:         %[[power:.*]] = arith.select %none, %{{.*}}, %[[e]] : f32
// CHECK-NEXT:    arith.mulf %[[left]], %[[power]] : f32
// CHECK:       %O_sum = diagram.contract %P, %V over [x] accumulate f32
// CHECK-NEXT:  %O = diagram.map (%[[sum:[a-z0-9_]+]] = %O_sum : {{.*}}, %[[m:[a-z0-9_]+]] = %m : {{.*}}, %[[l:[a-z0-9_]+]] = %l : {{.*}})
// CHECK:         %[[divisor:.*]] = arith.select %none, %{{.*}}, %[[l]] : f32
// CHECK-NEXT:    arith.divf %[[sum]], %[[divisor]] : f32
func.func @drawn_of_a_choice(%S: !E, %V: !V) -> !O {
  %m = diagram.reduce max %S over [x] : !E -> !l
  %E = diagram.map (%s = %S : !E, %r = %m : !l) -> !E {
    %d = arith.subf %s, %r : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !E -> !l
  %I = diagram.index -> tensor<?xi32, #diagram.array<[q]>>
  %J = diagram.index -> tensor<8xi32, #diagram.array<[x]>>
  %P = diagram.map (%a = %E : !E, %b = %l : !l, %r = %m : !l, %i = %I : tensor<?xi32, #diagram.array<[q]>>, %j = %J : tensor<8xi32, #diagram.array<[x]>>) -> !E {
    %zero = arith.constant 0.0 : f32
    %bottom = arith.constant 0xFF800000 : f32
    %seed = arith.constant 7 : i32
    %most = arith.constant 60000 : i32
    %bits = diagram.random 16 of %seed at %i, %j : i32
    %is = arith.cmpi slt, %bits, %most : i32
    %none = arith.cmpf oeq, %r, %bottom : f32
    %p = arith.divf %a, %b : f32
    %safe = arith.select %none, %zero, %p : f32
    %chosen = arith.select %is, %safe, %zero : f32
    diagram.yield %chosen : f32
  }
  %O = diagram.contract %P, %V over [x] accumulate f32 : !E, !V -> !O
  func.return %O : !O
}

// CHECK-LABEL: func.func @chosen_by_data
// CHECK:       arith.divf
// CHECK:       %O = diagram.contract %P, %V over [x] accumulate f32
func.func @chosen_by_data(%E: !E, %T: !E, %V: !V) -> !O {
  %l = diagram.reduce add %E over [x] : !E -> !l
  %P = diagram.map (%a = %E : !E, %b = %l : !l, %t = %T : !E) -> !E {
    %zero = arith.constant 0.0 : f32
    %is = arith.cmpf ogt, %t, %zero : f32
    %p = arith.divf %a, %b : f32
    %chosen = arith.select %is, %p, %zero : f32
    diagram.yield %chosen : f32
  }
  %O = diagram.contract %P, %V over [x] accumulate f32 : !E, !V -> !O
  func.return %O : !O
}

!R = tensor<?x?xf32, #diagram.array<[q, k]>>

// Relative to a maximum with another number in it, powers are told from their peak, which moves past the sum. Zero stands for a
// maximum that is -inf; where the axis is empty the peak counts as 1.
// CHECK-LABEL: func.func @peak
// CHECK-SAME:  "%p from the peak %m_peak of its powers", "exp(a + b) = exp(a) exp(b)", "relative to %m alone"
// CHECK:       %m_safe = diagram.map (%[[m:.*]] = %m :
// CHECK:         %[[no:.*]] = arith.constant 0xff800000 : f32
// CHECK:         %[[is:.*]] = arith.cmpf oeq, %[[m]], %[[no]]
// CHECK:         %[[zero:.*]] = arith.constant 0.000000e+00 : f32
// CHECK:         arith.select %[[is]], %[[zero]], %[[m]]
// CHECK:       %[[below:.*]] = diagram.map (%[[s:.*]] = %S : {{.*}}, %[[m:.*]] = %m_safe :
// CHECK:         %[[d:.*]] = arith.subf %[[s]], %[[m]]
// CHECK:         math.exp %[[d]]
// CHECK:       %m_peak = diagram.map (%[[m:.*]] = %m : {{.*}}, %[[large:.*]] = %M :
// CHECK:         %[[d:.*]] = arith.subf %[[m]], %[[large]]
// CHECK:         math.exp %[[d]]
// CHECK:       %l_sum = diagram.reduce add %[[below]] over [k]
// CHECK:       %l = diagram.map (%[[sum:.*]] = %l_sum : {{.*}}, %[[n:.*]] = %extent_k : i32, %[[peak:.*]] = %m_peak :
// CHECK:         %[[any:.*]] = arith.cmpi sgt, %[[n]]
// CHECK:         %[[safe:.*]] = arith.select %[[any]], %[[peak]], %{{.*}} : f32
// CHECK:         arith.mulf %[[sum]], %[[safe]]
func.func @peak(%S: !R, %sink: !l) -> !l {
  %m = diagram.reduce max %S over [k] : !R -> !l
  %M = diagram.map (%a = %m : !l, %b = %sink : !l) -> !l {
    %y = arith.maximumf %a, %b : f32
    diagram.yield %y : f32
  }
  %e = diagram.map (%a = %S : !R, %b = %M : !l) -> !R {
    %d = arith.subf %a, %b : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %l = diagram.reduce add %e over [k] : !R -> !l
  func.return %l : !l
}

// A constant of numerator and denominator is folded away: 80 would make sums of powers overflow before they are divided.
// CHECK-LABEL: func.func @constant
// CHECK:       %l_sum = diagram.reduce add %[[below:.*]] over [x]
// CHECK:       %O_sum = diagram.contract %[[below]], %V over [x]
// CHECK-NEXT:  %O = diagram.map (%[[sum:.*]] = %O_sum : {{.*}}, %[[l:.*]] = %l_sum :
// CHECK-NEXT:    arith.divf %[[sum]], %[[l]]
func.func @constant(%S: !E, %V: !V) -> !O {
  %m = diagram.reduce max %S over [x] : !E -> !l
  %e = diagram.map (%a = %S : !E, %b = %m : !l) -> !E {
    %d = arith.subf %a, %b : f32
    %c = arith.constant 80.0 : f32
    %u = arith.addf %d, %c : f32
    %p = math.exp %u : f32
    diagram.yield %p : f32
  }
  %l = diagram.reduce add %e over [x] : !E -> !l
  %P = diagram.map (%a = %e : !E, %b = %l : !l) -> !E {
    %p = arith.divf %a, %b : f32
    diagram.yield %p : f32
  }
  %O = diagram.contract %P, %V over [x] accumulate f32 : !E, !V -> !O
  func.return %O : !O
}

// Scores that are scaled, then masked: the scale moves past the condition, and past the maximum.
// CHECK-LABEL: func.func @scaled_before_a_condition
// CHECK:      %[[W:.*]] = diagram.where %S if "x <= q"
// CHECK:      %[[S:.*]] = diagram.map (%{{.*}} = %[[W]] :
// CHECK:      arith.mulf
// CHECK:      %[[M:.*]] = diagram.reduce max %[[W]] over [x]
// CHECK:      %[[T:.*]] = diagram.map (%{{.*}} = %[[M]] :
// CHECK:      arith.mulf
// CHECK:      diagram.map (%s = %[[S]] : {{.*}}, %r = %[[T]] :
func.func @scaled_before_a_condition(%S: tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
  %T = diagram.map (%s = %S : tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
    %c = arith.constant 0.125 : f32
    %t = arith.mulf %s, %c : f32
    diagram.yield %t : f32
  }
  %W = diagram.where %T if "x <= q" : tensor<4x8xf32, #diagram.array<[q, x]>>
  %m = diagram.reduce max %W over [x] : tensor<4x8xf32, #diagram.array<[q, x]>> -> tensor<4xf32, #diagram.array<[q]>>
  %D = diagram.map (%s = %W : tensor<4x8xf32, #diagram.array<[q, x]>>, %r = %m : tensor<4xf32, #diagram.array<[q]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
    %d = arith.subf %s, %r : f32
    diagram.yield %d : f32
  }
  func.return %D : tensor<4x8xf32, #diagram.array<[q, x]>>
}

// A negative scale, and one that others read unmasked, stay.
// CHECK-LABEL: func.func @stays_before_a_condition
// CHECK:      %T = diagram.map (%s = %S :
// CHECK:      %W = diagram.where %T if "x <= q"
// CHECK:      %U = diagram.map (%s = %S :
// CHECK:      %V = diagram.where %U if "x <= q"
func.func @stays_before_a_condition(%S: tensor<4x8xf32, #diagram.array<[q, x]>>) -> (tensor<4xf32, #diagram.array<[q]>>, tensor<4xf32, #diagram.array<[q]>>, tensor<4x8xf32, #diagram.array<[q, x]>>) {
  %T = diagram.map (%s = %S : tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
    %c = arith.constant -0.125 : f32
    %t = arith.mulf %s, %c : f32
    diagram.yield %t : f32
  }
  %W = diagram.where %T if "x <= q" : tensor<4x8xf32, #diagram.array<[q, x]>>
  %m = diagram.reduce max %W over [x] : tensor<4x8xf32, #diagram.array<[q, x]>> -> tensor<4xf32, #diagram.array<[q]>>
  %U = diagram.map (%s = %S : tensor<4x8xf32, #diagram.array<[q, x]>>) -> tensor<4x8xf32, #diagram.array<[q, x]>> {
    %c = arith.constant 0.125 : f32
    %t = arith.mulf %s, %c : f32
    diagram.yield %t : f32
  }
  %V = diagram.where %U if "x <= q" : tensor<4x8xf32, #diagram.array<[q, x]>>
  %n = diagram.reduce max %V over [x] : tensor<4x8xf32, #diagram.array<[q, x]>> -> tensor<4xf32, #diagram.array<[q]>>
  func.return %m, %n, %U : tensor<4xf32, #diagram.array<[q]>>, tensor<4xf32, #diagram.array<[q]>>, tensor<4x8xf32, #diagram.array<[q, x]>>
}

// Of two factors one leaves, so that what is summed is in the range of f32.
// CHECK-LABEL: func.func @one_of_two_leaves
// CHECK:      %[[P:.*]] = diagram.map (%s = %A : {{.*}}, %d = %m :
// CHECK:      arith.divf %s, %d
// CHECK:      %[[SUM:.*]] = diagram.contract %[[P]], %B over [x]
// CHECK:      diagram.map (%{{.*}} = %[[SUM]] : {{.*}}, %{{.*}} = %n :
func.func @one_of_two_leaves(%A: tensor<?x8xf32, #diagram.array<[i, x]>>, %B: tensor<?x8xf32, #diagram.array<[i, x]>>) -> tensor<?xf32, #diagram.array<[i]>> {
  %m = diagram.reduce max %A over [x] : tensor<?x8xf32, #diagram.array<[i, x]>> -> tensor<?xf32, #diagram.array<[i]>>
  %n = diagram.reduce max %B over [x] : tensor<?x8xf32, #diagram.array<[i, x]>> -> tensor<?xf32, #diagram.array<[i]>>
  %P = diagram.map (%s = %A : tensor<?x8xf32, #diagram.array<[i, x]>>, %d = %m : tensor<?xf32, #diagram.array<[i]>>) -> tensor<?x8xf32, #diagram.array<[i, x]>> {
    %p = arith.divf %s, %d : f32
    diagram.yield %p : f32
  }
  %Q = diagram.map (%s = %B : tensor<?x8xf32, #diagram.array<[i, x]>>, %d = %n : tensor<?xf32, #diagram.array<[i]>>) -> tensor<?x8xf32, #diagram.array<[i, x]>> {
    %q = arith.divf %s, %d : f32
    diagram.yield %q : f32
  }
  %Y = diagram.contract %P, %Q over [x] accumulate f32 : tensor<?x8xf32, #diagram.array<[i, x]>>, tensor<?x8xf32, #diagram.array<[i, x]>> -> tensor<?xf32, #diagram.array<[i]>>
  func.return %Y : tensor<?xf32, #diagram.array<[i]>>
}

// A share that is a power of a logarithm is divided by what that is of; and so is the logarithm beside it moved past the
// sum, which is then of powers times the distance from the maximum, and needs the sum of the powers itself.
// CHECK-LABEL: func.func @entropy
// CHECK-SAME:  "%s past the sum %y over [k]", "linearity of the sum"
// CHECK-SAME:  "%m, %s in the sum %y_sum over [k]", "Taylor's formula, exact for polynomials"
// CHECK:       %y_sum_about_of = diagram.map (%[[a:.*]] = %A : {{.*}}, %[[m:.*]] = %m : {{.*}})
// CHECK-NEXT:    %[[below:.*]] = arith.subf %[[a]], %[[m]] : f32
// CHECK-NEXT:    %[[power:.*]] = math.exp %[[below]] : f32
// CHECK-NEXT:    %[[term:.*]] = arith.mulf %[[power]], %[[below]] : f32
// CHECK-NEXT:    diagram.yield %[[term]] : f32
// CHECK:       %y_sum_about = diagram.reduce add %y_sum_about_of over [k]
// CHECK:       %y_sum = diagram.map (%[[about:.*]] = %y_sum_about : {{.*}}, %{{.*}} = %{{.*}} : i32, %[[s:.*]] = %s : {{.*}})
// CHECK:         %[[log:.*]] = math.log %[[s]] : f32
// CHECK:         %[[less:.*]] = arith.mulf %[[s]], %{{.*}} : f32
// CHECK-NEXT:    %[[moved:.*]] = arith.mulf %[[log]], %[[less]] : f32
// CHECK:         arith.addf %[[about]], %{{.*}} : f32
// CHECK:       %y = diagram.map (%{{.*}} = %y_sum : {{.*}}, %{{.*}} = %{{.*}} : i32, %{{.*}} = %s : {{.*}})
// CHECK:         arith.divf
func.func @entropy(%A: !L) -> !l {
  %m = diagram.reduce max %A over [k] : !L -> !l
  %e = diagram.map (%a = %A : !L, %b = %m : !l) -> !L {
    %below = arith.subf %a, %b : f32
    %power = math.exp %below : f32
    diagram.yield %power : f32
  }
  %s = diagram.reduce add %e over [k] : !L -> !l
  %p = diagram.map (%a = %A : !L, %b = %m : !l, %c = %s : !l) -> !L {
    %below = arith.subf %a, %b : f32
    %log = math.log %c : f32
    %share = arith.subf %below, %log : f32
    diagram.yield %share : f32
  }
  %t = diagram.map (%a = %p : !L) -> !L {
    %power = math.exp %a : f32
    %term = arith.mulf %power, %a : f32
    diagram.yield %term : f32
  }
  %y = diagram.reduce add %t over [k] : !L -> !l
  func.return %y : !l
}

// Whether a share is zero is asked of its score, so that the sum of the rest is one of powers; the divisor leaves it.
// CHECK-LABEL: func.func @tested
// CHECK-SAME:  "%l past the sum %y over [k]", "linearity of the sum"
// CHECK-SAME:  "tests of shares in the sum %y", "exp(s) is zero where s is -inf"
// CHECK:       %y_sum_about_of = diagram.map (%[[a:.*]] = %A : {{.*}}, %[[m:.*]] = %m : {{.*}})
// CHECK:         %[[none:.*]] = arith.cmpf oeq, %[[a]], %{{.*}} : f32
// CHECK:         %[[below:.*]] = arith.subf %[[a]], %[[m]] : f32
// CHECK-NEXT:    %[[power:.*]] = math.exp %[[below]] : f32
// CHECK-NEXT:    %[[term:.*]] = arith.mulf %[[power]], %[[below]] : f32
// CHECK-NEXT:    arith.select %[[none]], %{{.*}}, %[[term]] : f32
// CHECK:       %y_sum_about = diagram.reduce add %y_sum_about_of over [k]
// CHECK:       %y = diagram.map (%{{.*}} = %y_sum : {{.*}} %{{.*}} = %l : {{.*}})
// CHECK:         arith.divf
func.func @tested(%A: !L) -> !l {
  %m = diagram.reduce max %A over [k] : !L -> !l
  %e = diagram.map (%a = %A : !L, %b = %m : !l) -> !L {
    %below = arith.subf %a, %b : f32
    %power = math.exp %below : f32
    diagram.yield %power : f32
  }
  %l = diagram.reduce add %e over [k] : !L -> !l
  %p = diagram.map (%a = %e : !L, %b = %l : !l) -> !L {
    %share = arith.divf %a, %b : f32
    diagram.yield %share : f32
  }
  %t = diagram.map (%a = %p : !L) -> !L {
    %zero = arith.constant 0.0 : f32
    %none = arith.cmpf oeq, %a, %zero : f32
    %log = math.log %a : f32
    %term = arith.mulf %a, %log : f32
    %chosen = arith.select %none, %zero, %term : f32
    diagram.yield %chosen : f32
  }
  %y = diagram.reduce add %t over [k] : !L -> !l
  func.return %y : !l
}

// A sum over both axes is one over that along which shares are told first, and then over what is left.
// CHECK-LABEL: func.func @all_rows
// CHECK-SAME:  "%y one axis after another", "associativity of add"
// CHECK-SAME:  "%l past the sum %y_k over [k]", "linearity of the sum"
// CHECK:       %y_k_sum = diagram.reduce add %{{.*}} over [k]
// CHECK:       %y = diagram.reduce add %y_k over [q]
func.func @all_rows(%A: !L, %B: !L) -> tensor<f32, #diagram.array<[]>> {
  %m = diagram.reduce max %A over [k] : !L -> !l
  %e = diagram.map (%a = %A : !L, %b = %m : !l) -> !L {
    %below = arith.subf %a, %b : f32
    %power = math.exp %below : f32
    diagram.yield %power : f32
  }
  %l = diagram.reduce add %e over [k] : !L -> !l
  %t = diagram.map (%a = %e : !L, %b = %l : !l, %c = %B : !L) -> !L {
    %share = arith.divf %a, %b : f32
    %term = arith.mulf %share, %c : f32
    diagram.yield %term : f32
  }
  %y = diagram.reduce add %t over [q, k] : !L -> tensor<f32, #diagram.array<[]>>
  func.return %y : tensor<f32, #diagram.array<[]>>
}
