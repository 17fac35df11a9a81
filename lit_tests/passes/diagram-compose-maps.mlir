// RUN: xdsl-opt -p 'diagram-compose-maps' %s | filecheck %s

!x = tensor<?xf32, #diagram.array<[n]>>
!h = tensor<?xf16, #diagram.array<[n]>>
!X = tensor<?x?xf32, #diagram.array<[m, n]>>

// Five launches become one load and one save.
// CHECK-LABEL: func.func @sin2cos2
// CHECK:       %one = diagram.map (%[[x:.*]] = %x : {{.*}}) -> tensor<?xf32, #diagram.array<[n]>> {
// CHECK-NEXT:    %[[s:.*]] = math.sin %[[x]] : f32
// CHECK-NEXT:    %[[s2:.*]] = arith.mulf %[[s]], %[[s]] : f32
// CHECK-NEXT:    %[[c:.*]] = math.cos %[[x]] : f32
// CHECK-NEXT:    %[[c2:.*]] = arith.mulf %[[c]], %[[c]] : f32
// CHECK-NEXT:    %[[y:.*]] = arith.addf %[[s2]], %[[c2]] : f32
// CHECK-NEXT:    diagram.yield %[[y]] : f32
// CHECK-NEXT:  }
// CHECK-NEXT:  func.return %one
func.func @sin2cos2(%x: !x) -> !x {
  %s = diagram.map (%a = %x : !x) -> !x {
    %y = math.sin %a : f32
    diagram.yield %y : f32
  }
  %s2 = diagram.map (%a = %s : !x) -> !x {
    %y = arith.mulf %a, %a : f32
    diagram.yield %y : f32
  }
  %c = diagram.map (%a = %x : !x) -> !x {
    %y = math.cos %a : f32
    diagram.yield %y : f32
  }
  %c2 = diagram.map (%a = %c : !x) -> !x {
    %y = arith.mulf %a, %a : f32
    diagram.yield %y : f32
  }
  %one = diagram.map (%a = %s2 : !x, %b = %c2 : !x) -> !x {
    %y = arith.addf %a, %b : f32
    diagram.yield %y : f32
  }
  func.return %one : !x
}

// A root for each n is not taken again for each m and n; a product is.
// CHECK-LABEL: func.func @broadcast
// CHECK:       %r = diagram.map (%a = %x : {{.*}})
// CHECK:       %Y = diagram.map (%[[X:.*]] = %X : {{.*}}, %[[r:.*]] = %r : {{.*}}, %[[x:.*]] = %x : {{.*}}) -> tensor<?x?xf32
// CHECK-NEXT:    %[[a:.*]] = arith.mulf %[[X]], %[[r]] : f32
// CHECK-NEXT:    %[[b:.*]] = arith.mulf %[[x]], %[[x]] : f32
// CHECK-NEXT:    arith.addf %[[a]], %[[b]] : f32
func.func @broadcast(%X: !X, %x: !x) -> !X {
  %r = diagram.map (%a = %x : !x) -> !x {
    %y = math.sqrt %a : f32
    diagram.yield %y : f32
  }
  %p = diagram.map (%a = %x : !x) -> !x {
    %y = arith.mulf %a, %a : f32
    diagram.yield %y : f32
  }
  %Y = diagram.map (%a = %X : !X, %b = %r : !x, %c = %p : !x) -> !X {
    %y = arith.mulf %a, %b : f32
    %z = arith.addf %y, %c : f32
    diagram.yield %z : f32
  }
  func.return %Y : !X
}

// A widening is exact and is taken in; a rounding stays. Equal operations are one; unused ones go.
// CHECK-LABEL: func.func @casts
// CHECK:       %y = diagram.map (%[[a:.*]] = %h : tensor<?xf16, #diagram.array<[n]>>)
// CHECK-NEXT:    %[[w:.*]] = arith.extf %[[a]] : f16 to f32
// CHECK-NEXT:    arith.negf %[[w]] : f32
// CHECK:       %r = diagram.cast %y : {{.*}} -> tensor<?xf16, #diagram.array<[n]>>
// CHECK-NEXT:  %z = diagram.map (%[[a:.*]] = %r : tensor<?xf16, #diagram.array<[n]>>)
// CHECK-NEXT:    %[[w:.*]] = arith.extf %[[a]] : f16 to f32
// CHECK-NEXT:    math.absf %[[w]] : f32
// CHECK:       func.return %z, %z
func.func @casts(%h: !h) -> (!x, !x) {
  %w = diagram.cast %h : !h -> !x
  %y = diagram.map (%a = %w : !x) -> !x {
    %b = arith.negf %a : f32
    diagram.yield %b : f32
  }
  %r = diagram.cast %y : !x -> !h
  %v = diagram.cast %r : !h -> !x
  %z = diagram.map (%a = %v : !x) -> !x {
    %b = math.absf %a : f32
    diagram.yield %b : f32
  }
  %again = diagram.map (%other = %v : !x) -> !x {
    %b = math.absf %other : f32
    diagram.yield %b : f32
  }
  %unused = diagram.map (%a = %y : !x) -> !x {
    %b = math.exp %a : f32
    diagram.yield %b : f32
  }
  func.return %z, %again : !x, !x
}

// No element of a factor is used twice: no product of matrices. Products are added up in f32, and the sum is rounded once.
// CHECK-LABEL: func.func @dots
// CHECK-SAME:    #hierarchy.step<"diagram-compose-maps", "%d element by element", "a contraction is a sum of products",
// CHECK:       %d_products = diagram.map (%[[a:.*]] = %a : {{.*}}, %[[b:.*]] = %b : {{.*}}) -> tensor<?x?xf32, #diagram.array<[n, k]>>
// CHECK:       %[[SUM:.*]] = diagram.reduce add %d_products over [k] : {{.*}} -> tensor<?xf32, #diagram.array<[n]>>
// CHECK-NEXT:  %d = diagram.cast %[[SUM]] : tensor<?xf32, #diagram.array<[n]>> -> tensor<?xf16, #diagram.array<[n]>>
// CHECK-NEXT:  func.return %d :
!hk = tensor<?x?xf16, #diagram.array<[n, k]>>
func.func @dots(%a: !hk, %b: !hk) -> !h {
  %d = diagram.contract %a, %b over [k] accumulate f32 : !hk, !hk -> !h
  func.return %d : !h
}

// Unsigned integers of 8 bits widen without a sign.
// CHECK-LABEL: func.func @bytes
// CHECK:       %y = diagram.map (%[[a:.*]] = %u : tensor<?xui8, #diagram.array<[n]>>)
// CHECK-NEXT:    %[[w:.*]] = arith.uitofp %[[a]] : ui8 to f32
// CHECK-NEXT:    arith.negf %[[w]] : f32
// CHECK:       %p = diagram.map (%[[a:.*]] = %u : {{.*}}, %[[b:.*]] = %v : {{.*}}) ->
// CHECK-NEXT:    %[[l:.*]] = arith.extui %[[a]] : ui8 to i32
// CHECK-NEXT:    %[[r:.*]] = arith.extsi %[[b]] : i8 to i32
// CHECK-NEXT:    arith.muli %[[l]], %[[r]] : i32
!u8 = tensor<?xui8, #diagram.array<[n]>>
!s8 = tensor<?xi8, #diagram.array<[n]>>
!i32 = tensor<?xi32, #diagram.array<[n]>>
func.func @bytes(%u: !u8, %v: !s8) -> (!x, !i32) {
  %w = diagram.cast %u : !u8 -> !x
  %y = diagram.map (%a = %w : !x) -> !x {
    %b = arith.negf %a : f32
    diagram.yield %b : f32
  }
  %l = diagram.cast %u : !u8 -> !i32
  %r = diagram.cast %v : !s8 -> !i32
  %p = diagram.map (%a = %l : !i32, %b = %r : !i32) -> !i32 {
    %c = arith.muli %a, %b : i32
    diagram.yield %c : i32
  }
  func.return %y, %p : !x, !i32
}

// What chooses by a mask asks for the truth value itself: of one that says where something is not, sides change places.
// CHECK-LABEL: func.func @masks
// CHECK:       %y = diagram.map (%[[n:.*]] = %n : {{.*}}, %[[x:.*]] = %x : {{.*}}) ->
// CHECK:         %is = arith.cmpi slt, %[[n]], %{{.*}} : i32
// CHECK:         %[[zero:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-NOT:     arith.cmpi
// CHECK:         %chosen = arith.select %is, %[[zero]], %[[x]] : f32
// CHECK-NEXT:    diagram.yield %chosen : f32
func.func @masks(%x: !x, %n: !i32) -> !x {
  %mask = diagram.map (%a = %n : !i32) -> !i32 {
    %most = arith.constant 9 : i32
    %no = arith.constant 0 : i32
    %yes = arith.constant 1 : i32
    %is = arith.cmpi slt, %a, %most : i32
    %kept = arith.select %is, %no, %yes : i32
    diagram.yield %kept : i32
  }
  %y = diagram.map (%a = %x : !x, %kept = %mask : !i32) -> !x {
    %no = arith.constant 0 : i32
    %zero = arith.constant 0.0 : f32
    %holds = arith.cmpi sgt, %kept, %no : i32
    %chosen = arith.select %holds, %a, %zero : f32
    diagram.yield %chosen : f32
  }
  func.return %y : !x
}
