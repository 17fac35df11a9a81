// Sums under an order: of powers, times a factor of each row; of products with ones, of what is read; and of decayed
// elements, from each position on.

!a = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
!w = tensor<?x?xf32, #diagram.array<[q, x]>>

func.func @prefixes(%a: !a, %r: !r) -> (!r, !r, !r) attributes {sizes = #diagram.sizes<q = 23, x = 20>} {
  %W = diagram.map (%v = %a : !a, %s = %r : !r) -> !w {
    %p = math.exp %v : f32
    %t = arith.mulf %p, %s : f32
    diagram.yield %t : f32
  }
  %L = diagram.where %W if "x <= q" : !w
  %A = diagram.reduce add %L over [x] : !w -> !r
  %b = diagram.read %a at "x" : !a -> !a
  %one = diagram.fill 1.0 : f32 -> !w
  %L_b = diagram.where %one if "x < q" : !w
  %B = diagram.contract %L_b, %b over [x] accumulate f32 : !w, !a -> !r
  %D = diagram.map (%u = %r : !r, %v = %a : !a) -> !w {
    %d = arith.subf %u, %v : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %L_c = diagram.where %D if "q <= x" : !w
  %C = diagram.contract %L_c, %a over [x] accumulate f32 : !w, !a -> !r
  func.return %A, %B, %C : !r, !r, !r
}
