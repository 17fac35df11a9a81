// A sum under an order of which no array has the rows: nothing but what is summed tells how many chunks of them there are.

!a = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
!w = tensor<?x?xf32, #diagram.array<[q, x]>>

func.func @prefix(%a: !a, %s: !r) -> (!r, !r) attributes {sizes = #diagram.sizes<q = 23, x = 20>} {
  %b = diagram.read %a at "x" : !a -> !a
  %one = diagram.fill 1.0 : f32 -> !w
  %L = diagram.where %one if "x < q" : !w
  %B = diagram.contract %L, %b over [x] accumulate f32 : !w, !a -> !r
  %t = diagram.map (%u = %s : !r) -> !r {
    %v = math.sin %u : f32
    diagram.yield %v : f32
  }
  func.return %B, %t : !r, !r
}
