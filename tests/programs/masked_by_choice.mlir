// Choices by positions. Those of %near and of %linear only put identities of reductions in the place of elements;
// the others do not: rows before which nothing is, a scale that turns -inf around, a maximum of zeros, and what is
// returned.

!S = tensor<?x12xf32, #diagram.array<[q, x]>>
!V = tensor<12x8xf32, #diagram.array<[x, e]>>
!O = tensor<?x8xf32, #diagram.array<[q, e]>>
!row = tensor<?xf32, #diagram.array<[q]>>
!q = tensor<?xi32, #diagram.array<[q]>>
!x = tensor<12xi32, #diagram.array<[x]>>

func.func @masked_by_choice(%S: !S, %V: !V) -> (!O, !O, !O, !row, !row, !S, !row)
    attributes {sizes = #diagram.sizes<q = 11>} {
  %q = diagram.index -> !q
  %x = diagram.index -> !x
  %near = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
    %none = arith.constant 0xff800000 : f32
    %four = arith.constant 4 : i32
    %one = arith.constant 1 : i32
    %later = arith.cmpi sgt, %j, %i : i32
    %half = arith.shrsi %i, %one : i32
    %far = arith.cmpi sgt, %half, %four : i32
    %first = arith.cmpi sge, %j, %four : i32
    %both = arith.andi %far, %first : i1
    %hidden = arith.ori %later, %both : i1
    %t = arith.select %hidden, %none, %s : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%near) over [x] : (!S) -> !S
  %A = diagram.contract %P, %V over [x] accumulate f32 : !S, !V -> !O
  %early = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
    %zero = arith.constant 0.0 : f32
    %half = arith.constant 0.5 : f32
    %later = arith.cmpi sgt, %j, %i : i32
    %t = arith.select %later, %zero, %s : f32
    %u = arith.mulf %t, %half : f32
    diagram.yield %u : f32
  }
  %linear = diagram.contract %early, %V over [x] accumulate f32 : !S, !V -> !O
  %strict = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
    %none = arith.constant 0xff800000 : f32
    %before = arith.cmpi slt, %j, %i : i32
    %t = arith.select %before, %s, %none : f32
    diagram.yield %t : f32
  }
  %P_strict = diagram.apply @softmax(%strict) over [x] : (!S) -> !S
  %B = diagram.contract %P_strict, %V over [x] accumulate f32 : !S, !V -> !O
  %turned = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
    %none = arith.constant 0xff800000 : f32
    %scale = arith.constant -0.5 : f32
    %sees = arith.cmpi sle, %j, %i : i32
    %t = arith.select %sees, %s, %none : f32
    %u = arith.mulf %t, %scale : f32
    diagram.yield %u : f32
  }
  %m = diagram.reduce max %turned over [x] : !S -> !row
  %zeros = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
    %zero = arith.constant 0.0 : f32
    %sees = arith.cmpi sle, %j, %i : i32
    %t = arith.select %sees, %s, %zero : f32
    diagram.yield %t : f32
  }
  %n = diagram.reduce max %zeros over [x] : !S -> !row
  %kept = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
    %zero = arith.constant 2.0 : f32
    %none = arith.constant 0xff800000 : f32
    %sees = arith.cmpi sle, %j, %i : i32
    %t = arith.select %sees, %s, %none : f32
    %u = arith.addf %t, %zero : f32
    diagram.yield %u : f32
  }
  %k = diagram.reduce max %kept over [x] : !S -> !row
  func.return %A, %linear, %B, %m, %n, %kept, %k : !O, !O, !O, !row, !row, !S, !row
}
