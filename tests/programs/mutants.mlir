// A little of everything in which a pass could go wrong: a law applied along an axis of another name, a sum into an
// array, two like maps of different operands, quotients that move, minima, and several results.

!A = tensor<?x?xf32, #diagram.array<[i, k]>>
!B = tensor<?x?xf16, #diagram.array<[k, j]>>
!C = tensor<?x?xf32, #diagram.array<[i, j]>>
!Ah = tensor<?x?xf16, #diagram.array<[i, k]>>
!r = tensor<?xf32, #diagram.array<[i]>>

func.func @mutants(%A: !A, %G: !A, %B: !B, %C: !C) -> (!C, !r, !r, !r, !r, !r, !r)
    attributes {sizes = #diagram.sizes<i = 5, j = 7, k = 150>} {
  %P = diagram.apply @softmax(%A) over [k] : (!A) -> !A
  %Ph = diagram.cast %P : !A -> !Ah
  %O = diagram.contract %Ph, %B over [k] accumulate f32 into %C : !Ah, !B -> !C
  %low = diagram.reduce min %G over [k] : !A -> !r
  %E = diagram.map (%g = %G : !A, %m = %low : !r) -> !A {
    %half = arith.constant 0.5 : f32
    %below = arith.subf %m, %g : f32
    %scaled = arith.mulf %below, %half : f32
    %exp = math.exp %scaled : f32
    diagram.yield %exp : f32
  }
  %F = diagram.map (%g = %G : !A, %m = %low : !r) -> !A {
    %half = arith.constant 0.25 : f32
    %below = arith.subf %m, %g : f32
    %scaled = arith.mulf %below, %half : f32
    %exp = math.exp %scaled : f32
    diagram.yield %exp : f32
  }
  %H = diagram.map (%g = %G : !A, %m = %low : !r) -> !A {
    %above = arith.subf %g, %m : f32
    %below = arith.negf %above : f32
    %exp = math.exp %below : f32
    diagram.yield %exp : f32
  }
  %s = diagram.reduce add %E over [k] : !A -> !r
  %t = diagram.reduce add %F over [k] : !A -> !r
  %late = diagram.map (%g = %H : !A, %l = %s : !r) -> !A {
    %u = arith.mulf %g, %l : f32
    diagram.yield %u : f32
  }
  %u = diagram.reduce add %late over [k] : !A -> !r
  %D = diagram.map (%a = %A : !A, %g = %G : !A) -> !A {
    %d = arith.subf %a, %g : f32
    diagram.yield %d : f32
  }
  %N = diagram.map (%a = %A : !A, %g = %G : !A) -> !A {
    %d = arith.subf %g, %a : f32
    diagram.yield %d : f32
  }
  %most = diagram.reduce max %D over [k] : !A -> !r
  %least = diagram.reduce max %N over [k] : !A -> !r
  %Z = diagram.map (%a = %A : !A) -> !A {
    %c = arith.constant 3.0 : f32
    %d = arith.mulf %a, %c : f32
    diagram.yield %d : f32
  }
  %top = diagram.reduce max %Z over [k] : !A -> !r
  func.return %O, %s, %t, %u, %most, %least, %top : !C, !r, !r, !r, !r, !r, !r
}
