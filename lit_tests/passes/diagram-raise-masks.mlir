// RUN: xdsl-opt -p 'diagram-raise-masks' %s | filecheck %s
// RUN: xdsl-opt -p 'diagram-raise-masks' %s | xdsl-opt | filecheck %s

!S = tensor<?x9xf32, #diagram.array<[q, x]>>
!mask = tensor<?x9xf32, #diagram.array<[q, x]>>
!ones = tensor<?x9xi32, #diagram.array<[q, x]>>
!V = tensor<9x4xf32, #diagram.array<[x, e]>>
!O = tensor<?x4xf32, #diagram.array<[q, e]>>
!row = tensor<?xf32, #diagram.array<[q]>>
!q = tensor<?xi32, #diagram.array<[q]>>
!x = tensor<9xi32, #diagram.array<[x]>>

// -inf goes through the scale and the power up to each reduction; the scale stays, and the choice is gone.

// CHECK-LABEL: func.func @powers
// CHECK-SAME: derivation = [#hierarchy.step<"diagram-raise-masks", "%T where 'x <= q'", "an identity of every reduction may be absent", "elsewhere -inf, which no reduction of it counts">]
// CHECK-NEXT: %T_b = diagram.map (%s = %S : tensor<?x9xf32, #diagram.array<[q, x]>>) -> tensor<?x9xf32, #diagram.array<[q, x]>> {
// CHECK-NEXT:   %scale = arith.constant 5.000000e-01 : f32
// CHECK-NEXT:   %u = arith.mulf %s, %scale : f32
// CHECK-NEXT:   diagram.yield %u : f32
// CHECK-NEXT: }
// CHECK-NEXT: %T = diagram.where %T_b if "x <= q" : tensor<?x9xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %m = diagram.reduce max %T over [x]
// CHECK-NEXT: %e = diagram.map (%a = %T : tensor<?x9xf32, #diagram.array<[q, x]>>, %b = %m : tensor<?xf32, #diagram.array<[q]>>)
// CHECK:      %O = diagram.contract %e, %V over [x]
func.func @powers(%S: !S, %V: !V) -> !O {
  %q = diagram.index -> !q
  %x = diagram.index -> !x
  %T = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
    %none = arith.constant 0xff800000 : f32
    %scale = arith.constant 0.5 : f32
    %hidden = arith.cmpi sgt, %j, %i : i32
    %t = arith.select %hidden, %none, %s : f32
    %u = arith.mulf %t, %scale : f32
    diagram.yield %u : f32
  }
  %m = diagram.reduce max %T over [x] : !S -> !row
  %e = diagram.map (%a = %T : !S, %b = %m : !row) -> !S {
    %d = arith.subf %a, %b : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %O = diagram.contract %e, %V over [x] accumulate f32 : !S, !V -> !O
  func.return %O : !O
}

// A mask that is added: the zeros are not added any more, nor is it an array. Truth values may be numbers.

// CHECK-LABEL: func.func @added
// CHECK-SAME: "%T where 'x <= q and q - x < 4'"
// CHECK-NEXT: %T = diagram.where %S if "x <= q and q - x < 4" : tensor<?x9xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %m = diagram.reduce max %T over [x]
func.func @added(%S: !S) -> !row {
  %q = diagram.index -> !q
  %x = diagram.index -> !x
  %near = diagram.map (%i = %q : !q, %j = %x : !x) -> !ones {
    %four = arith.constant 4 : i32
    %one = arith.constant 1 : i32
    %zero = arith.constant 0 : i32
    %d = arith.subi %i, %j : i32
    %is = arith.cmpi slt, %d, %four : i32
    %n = arith.select %is, %one, %zero : i32
    diagram.yield %n : i32
  }
  %mask = diagram.map (%n = %near : !ones, %i = %q : !q, %j = %x : !x) -> !mask {
    %none = arith.constant 0xff800000 : f32
    %all = arith.constant 0.0 : f32
    %zero = arith.constant 0 : i32
    %before = arith.cmpi sle, %j, %i : i32
    %is = arith.cmpi sgt, %n, %zero : i32
    %both = arith.andi %before, %is : i1
    %t = arith.select %both, %all, %none : f32
    diagram.yield %t : f32
  }
  %T = diagram.map (%s = %S : !S, %b = %mask : !mask) -> !S {
    %t = arith.addf %s, %b : f32
    diagram.yield %t : f32
  }
  %m = diagram.reduce max %T over [x] : !S -> !row
  func.return %m : !row
}

// Zeros in a sum, also of rows that have nothing else.

// CHECK-LABEL: func.func @zeros
// CHECK-NEXT: %T = diagram.where %S if "x < q" : tensor<?x9xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %O = diagram.contract %T, %V over [x]
func.func @zeros(%S: !S, %V: !V) -> !O {
  %q = diagram.index -> !q
  %x = diagram.index -> !x
  %T = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
    %zero = arith.constant 0.0 : f32
    %before = arith.cmpi slt, %j, %i : i32
    %t = arith.select %before, %s, %zero : f32
    diagram.yield %t : f32
  }
  %O = diagram.contract %T, %V over [x] accumulate f32 : !S, !V -> !O
  func.return %O : !O
}

// -1e9 is no identity of a maximum, nor is -inf one of a sum; of which q is known only at launch, a window may have
// no key left.

// CHECK-LABEL: func.func @none
// CHECK-SAME: #hierarchy.step<"decline diagram-raise-masks", "the choice of %T by 'x <= q'", "an identity of every reduction may be absent", "the maximum %m takes it, where it may be below zero">
// CHECK-SAME: #hierarchy.step<"decline diagram-raise-masks", "the choice of %U by 'x > q'", "an identity of every reduction may be absent", "the sum %l takes it, where it may be -inf">
// CHECK-SAME: #hierarchy.step<"decline diagram-raise-masks", "the choice of %W by 'q - x < 4'", "an identity of every reduction may be absent", "the sum %z takes it, where it may be NaN: a row of %y may have no other element">
// CHECK-NOT: diagram.where
// CHECK: func.return %m, %l, %z
func.func @none(%S: !S) -> (!row, !row, !row) {
  %q = diagram.index -> !q
  %x = diagram.index -> !x
  %T = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
    %low = arith.constant -1.0e9 : f32
    %before = arith.cmpi sle, %j, %i : i32
    %t = arith.select %before, %s, %low : f32
    diagram.yield %t : f32
  }
  %U = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
    %none = arith.constant 0xff800000 : f32
    %before = arith.cmpi sle, %j, %i : i32
    %t = arith.select %before, %none, %s : f32
    diagram.yield %t : f32
  }
  %W = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
    %none = arith.constant 0xff800000 : f32
    %four = arith.constant 4 : i32
    %d = arith.subi %i, %j : i32
    %near = arith.cmpi slt, %d, %four : i32
    %t = arith.select %near, %s, %none : f32
    diagram.yield %t : f32
  }
  %m = diagram.reduce max %T over [x] : !S -> !row
  %l = diagram.reduce add %U over [x] : !S -> !row
  %y = diagram.reduce max %W over [x] : !S -> !row
  %e = diagram.map (%a = %W : !S, %b = %y : !row) -> !S {
    %d = arith.subf %a, %b : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %z = diagram.reduce add %e over [x] : !S -> !row
  func.return %m, %l, %z : !row, !row, !row
}
