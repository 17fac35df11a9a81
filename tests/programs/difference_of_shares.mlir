// What a product multiplies is a sum of shares, of which one is subtracted and one is a number of the head times more.

!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!V = tensor<?x16xf16, #diagram.array<[x, e]>>
!k = tensor<?xf32, #diagram.array<[h]>>
!O = tensor<?x?x16xf32, #diagram.array<[h, q, e]>>

func.func @difference_of_shares(%A: !S, %B: !S, %C: !S, %V: !V, %k: !k) -> !O
    attributes {sizes = #diagram.sizes<h = 2, q = 7, x = 37>} {
  %a = diagram.apply @softmax(%A) over [x] : (!S) -> !S
  %b = diagram.apply @softmax(%B) over [x] : (!S) -> !S
  %c = diagram.apply @softmax(%C) over [x] : (!S) -> !S
  %D = diagram.map (%p = %a : !S, %r = %b : !S, %s = %c : !S, %l = %k : !k) -> !S {
    %less = arith.subf %p, %r : f32
    %more = arith.mulf %l, %s : f32
    %d = arith.addf %less, %more : f32
    diagram.yield %d : f32
  }
  %D16 = diagram.cast %D : !S -> !P
  %O = diagram.contract %D16, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O : !O
}
